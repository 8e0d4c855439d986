"""The op catalogue: the meaning of every op, and the table of kernels that a backend resolved to."""
