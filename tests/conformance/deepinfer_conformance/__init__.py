"""The conformance suite: whether a DeepInfer backend does what the contract promises. A pytest plugin and its tests."""

SUITE_VERSION = "0.1.0"  # the core's own version: a suite checks the contract that was released with it
