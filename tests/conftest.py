"""What every test shares: no DEEPINFER_* variable of the caller, strict plugins, and one hypothesis profile."""

import os

from hypothesis import HealthCheck, settings

collect_ignore = ["conformance"]  # a distribution of its own, whose tests need a backend to be named

for name in [name for name in os.environ if name.startswith("DEEPINFER_")]:
    del os.environ[name]
os.environ["DEEPINFER_PLUGINS_STRICT"] = "1"

settings.register_profile(
    "default",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("thorough", parent=settings.get_profile("default"), derandomize=False, max_examples=1000)
settings.load_profile("default")
