"""Runs pytest with another build of the C++ module than the installed one: `with_native.py MODULE ARGUMENT...`."""

import importlib.util
import sys

import pytest

import deepinfer_core

NAME = "deepinfer_core._native"

spec = importlib.util.spec_from_file_location(NAME, sys.argv[1])
assert spec is not None
assert spec.loader is not None
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
sys.modules[NAME] = deepinfer_core._native = module
sys.exit(pytest.main(sys.argv[2:]))
