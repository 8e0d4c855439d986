"""The standard tests, one file an area. They use the fixtures of `plugin.py` and no other."""
