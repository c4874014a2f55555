"""Hypothesis: short and repeatable by default; `OFFRAMP_TEST_LONG=1` looks further, with a new seed each time."""

import os

from hypothesis import HealthCheck, Phase, settings

_COMMON = settings(
    # A timing never decides a test.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    # Without the phase that explains a failure: it traces every line, which takes minutes for a state machine.
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink],
)

settings.register_profile("short", _COMMON, max_examples=100, stateful_step_count=30, derandomize=True)
settings.register_profile("long", _COMMON, max_examples=1_000, stateful_step_count=60, print_blob=True)


def load() -> None:
    settings.load_profile("long" if os.environ.get("OFFRAMP_TEST_LONG") else "short")
