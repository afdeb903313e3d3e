"""Errors of the gateway.

GatewayError
    SettingsError     what the program was started with cannot be used
    RoutingError      a routing document cannot be used
ApiError              an answer other than success, in OpenAI's form
"""

import math
from typing import Literal

import msgspec


class GatewayError(Exception):
    """Base of all; the message is for the user and says what to do."""


class SettingsError(GatewayError):
    """Flags or variables cannot be used."""


class RoutingError(GatewayError):
    """A routing document is broken, or of another schema."""


_TYPES = {
    401: "invalid_request_error",
    403: "invalid_request_error",
    404: "NotFoundError",
    408: "TimeoutError",
    429: "RateLimitError",
    500: "InternalServerError",
    502: "InternalServerError",
    503: "ServiceUnavailableError",
    504: "TimeoutError",
}
REASONS = {
    100: "Continue",
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    411: "Length Required",
    413: "Content Too Large",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


class ApiError(Exception):
    """An answer other than success.

    Parameters
    ----------
    reason
        Label of the metric that counts it.
    retry_after_seconds
        When to try again, jitter included.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        reason: str,
        code: str | None = None,
        param: str | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.reason = reason
        self.code = code or reason
        self.param = param
        self.retry_after_seconds = retry_after_seconds

    def body(self) -> bytes:
        """The JSON body."""
        detail = {
            "message": self.message,
            "type": _TYPES.get(self.status, "invalid_request_error"),
            "param": self.param,
            "code": self.code,
        }
        return msgspec.json.encode({"error": detail})

    def headers(self) -> list[tuple[bytes, bytes]]:
        """When to try again, in whole seconds and milliseconds; or what is asked for."""
        if self.status == 401:
            return [(b"www-authenticate", b'Bearer realm="quire"')]
        if self.retry_after_seconds is None:
            return []
        milliseconds = math.ceil(1000 * self.retry_after_seconds)
        return [
            (b"retry-after", str(-(-milliseconds // 1000)).encode()),
            (b"retry-after-ms", str(milliseconds).encode()),
        ]


def shutting_down() -> ApiError:
    """Return what a request is told by a gateway that ends."""
    return ApiError(
        503,
        "The gateway is shutting down; send the request again.",
        reason="shutting_down",
        retry_after_seconds=1.0,
    )


def engines_failed() -> ApiError:
    """Return what a request is told that engines got and did not answer."""
    return ApiError(502, "The engines failed on this request.", reason="failed")


def no_files() -> ApiError:
    """Return what a request is told while the gateway can open no connection to engines."""
    return ApiError(
        503,
        "The gateway has as many connections open as it may. Send the request again later.",
        reason="no_files",
        retry_after_seconds=1.0,
    )


def no_engine(retry_after_seconds: float) -> ApiError:
    """Return what a request is told whose service has no engine in time."""
    return ApiError(
        503,
        "No engine of this model is ready. Send the request again later.",
        reason="no_engine",
        retry_after_seconds=retry_after_seconds,
    )


_NO_ROOM = {
    "queue_full": "The gateway's queue for this model is full. Send the request again later.",
    "deadline": "There was no room for this request within its deadline: that of the header"
    " x-quire-deadline-ms, of spec.scaling.slo.timeToFirstToken, or"
    " spec.admission.maxQueueSeconds, whichever ends first. Send the request again later.",
}


def no_room(reason: Literal["queue_full", "deadline"], retry_after_seconds: float) -> ApiError:
    """Return what a request is told that engines have no room for."""
    return ApiError(
        429,
        _NO_ROOM[reason],
        reason=reason,
        code="rate_limit_exceeded",
        retry_after_seconds=retry_after_seconds,
    )
