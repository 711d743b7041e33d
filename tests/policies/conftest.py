"""How long the properties of views are searched: shortly and always the same, or with HYPOTHESIS_PROFILE=nightly."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "policies",
    max_examples=150,
    stateful_step_count=20,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "nightly",
    max_examples=100_000,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
