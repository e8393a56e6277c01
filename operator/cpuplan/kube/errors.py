"""Errors of talking to the API server: one class per thing a caller may handle differently.

Errors of urllib3 and of the `kubernetes` package end here: `client` and `connection` raise these only.
"""


class KubeError(Exception):
    """Something about the API server went wrong; the text is one sentence for people."""


class KubeConfigError(KubeError):
    """The way to the API server is not known: no kubeconfig, or no service account in this pod."""


class ApiUnreachableError(KubeError):
    """No answer came: refused, reset, timed out, or TLS failed."""


class UnexpectedAnswerError(KubeError):
    """An answer came that is not what the API server sends: no JSON, or another kind of object."""


class ApiStatusError(KubeError):
    """The API server answered with an error.

    Attributes:
        code: the HTTP status.
        reason: the machine-readable reason of the Status object, such as `NotFound`; empty without one.
        message: the Status object's text, or the start of the body.
    """

    def __init__(self, request: str, code: int, reason: str, message: str) -> None:
        super().__init__(f"{request} was answered with {f'{code} {reason}'.strip()}: {message}")
        self.code = code
        self.reason = reason
        self.message = message


class UnauthorizedError(ApiStatusError):
    """401: the token is unknown or has expired."""


class ForbiddenError(ApiStatusError):
    """403: RBAC or an admission policy refused."""


class NotFoundError(ApiStatusError):
    """404: the object (or the API) does not exist."""


class ConflictError(ApiStatusError):
    """409: it exists already, or has changed since it was read."""


class GoneError(ApiStatusError):
    """410: the resource version is too old; list again."""


class InvalidError(ApiStatusError):
    """400 or 422: the object or patch itself is refused, also by validating policies."""


class TooManyRequestsError(ApiStatusError):
    """429: the server asks to slow down."""


_BY_CODE: dict[int, type[ApiStatusError]] = {
    400: InvalidError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
    429: TooManyRequestsError,
}


def status_error(request: str, code: int, reason: str, message: str) -> ApiStatusError:
    """The error of the class that belongs to an HTTP status (or to the code of a Status object)."""
    return _BY_CODE.get(code, ApiStatusError)(request, code, reason, message)
