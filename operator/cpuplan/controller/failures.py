"""Why the process ends, as one sentence and an exit code: the only place that knows everybody's errors."""

from dataclasses import dataclass

import kopf

from ..kube.errors import ApiUnreachableError, ForbiddenError, KubeConfigError, KubeError, UnauthorizedError
from ..process.endpoints import ListenError
from ..process.flags import EXIT_MISCONFIGURED
from .access import MissingRightsError
from .operation import LeadershipLostError

EXIT_FAILED = 1
"""The process cannot go on; a restart may help."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The end of the process: what is logged, and what the shell sees."""

    exit_code: int
    sentence: str


def failure_of(error: BaseException) -> Failure:
    """The failure that an error means.

    Errors of kopf reach us as its own classes, in groups, or behind the RuntimeError of its watcher; the
    innermost cause is what people need to read.
    """
    match _innermost(error):
        case KubeConfigError() | ForbiddenError() | UnauthorizedError() | MissingRightsError() | ListenError() as cause:
            return Failure(EXIT_MISCONFIGURED, str(cause))
        case kopf.LoginError():
            return Failure(EXIT_MISCONFIGURED, "the API server takes none of our credentials any more (401)")
        case ApiUnreachableError() as cause:
            return Failure(EXIT_FAILED, f"{cause}; is the API server up, and may this pod reach it?")
        case KubeError() | LeadershipLostError() | OSError() as cause if not _is_foreign(cause):
            return Failure(EXIT_FAILED, str(cause))
        case cause if _is_foreign(cause):
            return Failure(EXIT_FAILED, f"the watch of pods ended: {str(cause) or type(cause).__name__}")
        case cause:
            return Failure(EXIT_FAILED, f"unexpected {type(cause).__name__}: {cause}")


def _is_foreign(error: BaseException) -> bool:
    return type(error).__module__.startswith(("kopf.", "aiohttp."))


def _innermost(error: BaseException) -> BaseException:
    while not isinstance(error, kopf.LoginError):
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        elif error.__cause__ is not None and (isinstance(error, RuntimeError) or _is_foreign(error)):
            error = error.__cause__
        else:
            break
    return error
