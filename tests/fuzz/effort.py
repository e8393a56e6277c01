"""How long the fuzz tests look: a sample in `make test`, as long as CPUPLAN_FUZZ_EXAMPLES says in `make soak`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

VARIABLE = "CPUPLAN_FUZZ_EXAMPLES"

EXAMPLES = int(os.environ.get(VARIABLE, "30"))
"""Examples per test: 30 keep the whole folder within seconds."""

fuzz = settings(
    max_examples=EXAMPLES,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
"""Decorates a fuzz test. Nothing is timed; what never ends meets pytest's limit."""
