"""The Python face of the C++ scheduler."""
