"""Measurements of the speed that the specification bounds; run by hand, never asserted in a test.

    PYTHONPATH=operator:. python -m benchmarks            # all of them
    PYTHONPATH=operator:. python -m benchmarks reading    # one

What belongs here: figures with their bound. What does not: tests. May import: cpuplan and tests.machines.
"""
