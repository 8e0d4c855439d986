"""Training the bundled V4.1 model: from text files to a checkpoint folder, and the numbers of its model card."""

import sys
from pathlib import Path

# The dense implementation that is trained, `dense_v41`, lives with the tests, which judge the engine by it.
sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "oracle"))
