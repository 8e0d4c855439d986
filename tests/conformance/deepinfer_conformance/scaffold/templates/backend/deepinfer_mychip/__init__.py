"""The mychip backend. It computes on the host until it opens a device of its own."""
