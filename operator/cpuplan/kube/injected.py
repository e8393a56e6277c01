"""What admission puts into a new pod that asks for a plan: the names, for those who look for it.

What exactly is added stands in the chart's injection policy.
"""

from typing import Final

NAME: Final = "cpuplan"
"""The init container and the volume; a pod that has something else of this name is left alone."""

CRASHED: Final = "init-crashed"
"""Fault code of an init container that ended without a verdict."""

PLAN_DIRECTORY: Final = "/etc/cpuplan"
"""Where the volume is mounted."""
