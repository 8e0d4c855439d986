"""What the standard tests compare with: plain statements of the contract's laws, and the inputs to try them on.

Values are worked out in float64 or Python integers, one row after another, from the contract's words. Nothing here
calls a kernel, and nothing but `moving.py` knows of a device.
"""
