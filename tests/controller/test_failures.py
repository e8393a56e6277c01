"""Every end of the process is one sentence and an exit code."""

import errno

import aiohttp
import kopf
import pytest
from kopf._cogs.clients.watching import WatchingError

from cpuplan.controller.access import MissingRightsError, Right
from cpuplan.controller.failures import Failure, failure_of
from cpuplan.controller.operation import LeadershipLostError
from cpuplan.kube.errors import (
    ApiUnreachableError,
    ForbiddenError,
    KubeConfigError,
    UnauthorizedError,
    UnexpectedAnswerError,
)
from cpuplan.process.endpoints import ListenError


def caused(outer: BaseException, cause: BaseException) -> BaseException:
    """`outer`, raised from `cause`."""
    outer.__cause__ = cause
    return outer


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (KubeConfigError("kubeconfig /x does not exist"), Failure(2, "kubeconfig /x does not exist")),
        (
            MissingRightsError([Right("list", "", "pods")]),
            Failure(2, "the operator's account may not list pods in all namespaces: bind it to the roles of the chart"),
        ),
        (
            ForbiddenError("GET /api", 403, "Forbidden", "no"),
            Failure(2, "GET /api was answered with 403 Forbidden: no"),
        ),
        (
            UnauthorizedError("GET /api", 401, "Unauthorized", "no"),
            Failure(2, "GET /api was answered with 401 Unauthorized: no"),
        ),
        (
            ApiUnreachableError("GET /api got no answer: refused"),
            Failure(1, "GET /api got no answer: refused; is the API server up, and may this pod reach it?"),
        ),
        (UnexpectedAnswerError("no JSON"), Failure(1, "no JSON")),
        (LeadershipLostError("lost"), Failure(1, "lost")),
        (ListenError("cannot listen on :1"), Failure(2, "cannot listen on :1")),
        (OSError(errno.EIO, "broken"), Failure(1, "[Errno 5] broken")),
        (kopf.LoginError("long text"), Failure(2, "the API server takes none of our credentials any more (401)")),
        (WatchingError("Error in the watch-stream"), Failure(1, "the watch of pods ended: Error in the watch-stream")),
        (aiohttp.ClientPayloadError("cut off"), Failure(1, "the watch of pods ended: cut off")),
        (
            caused(RuntimeError("Event processing has failed"), caused(aiohttp.ClientError("x"), OSError("reset"))),
            Failure(1, "reset"),
        ),
        (ExceptionGroup("several", [KubeConfigError("first"), OSError("second")]), Failure(2, "first")),
        (KeyError("uid"), Failure(1, "unexpected KeyError: 'uid'")),
    ],
)
def test_an_error_becomes_a_failure(error: BaseException, failure: Failure) -> None:
    assert failure_of(error) == failure
