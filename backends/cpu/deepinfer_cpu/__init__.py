"""The CPU backend: a worker thread as the execution queue, and kernels of its own. The ops' meaning is the core's."""
