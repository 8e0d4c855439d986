"""The CPU backend: a worker thread as the execution queue, and kernels of its own. The ops' meaning is the core's."""

BUILT_FOR = 1  # the version of the backend contract
