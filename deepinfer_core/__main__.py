"""`python -m deepinfer_core` is the program `deepinfer`."""

import sys

from deepinfer_core.cli.main import main

sys.exit(main())
