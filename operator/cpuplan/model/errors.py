"""The errors of the library; each carries a stable reason code for programs."""

from __future__ import annotations

from collections.abc import Callable


class CpuPlanError(ValueError):
    """A plan that cannot be made, or a value that is not a plan.

    `reason` is a stable code from the table in docs/annotations.md; the text is for people.
    """

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple[Callable[[str, str], CpuPlanError], tuple[str, str]]:
        """Makes it picklable: an error of an engine's worker process reaches its parent."""
        return _error_again, (str(self), self.reason)


def _error_again(message: str, reason: str) -> CpuPlanError:
    return CpuPlanError(message, reason=reason)


class HostReadError(OSError):
    """A root folder of the host trees that cannot be read at all; single missing files never raise."""


class OverrideError(ValueError):
    """A topology override that cannot be used; the text says what is wrong where."""


class OverrideMissingError(OverrideError):
    """There is no file at the topology override's path."""
