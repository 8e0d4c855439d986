"""Puts this folder on the path, so that the tests here can import `dense_v41`."""
