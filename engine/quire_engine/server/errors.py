"""Errors as OpenAI's clients expect them.

    {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}

Messages are made for the client's eyes: no paths, addresses or tracebacks. What nobody foresaw is
logged in full and answered with a plain 500.
"""

import logging
import math
import random
import re
from typing import Literal

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from quire_engine.errors import EngineDeadError, QuireError, RequestError
from quire_engine.server.schemas.allowed import allowed_values

_log = logging.getLogger(__name__)

ErrorType = Literal[
    "invalid_request_error",
    "NotFoundError",
    "RateLimitError",
    "InternalServerError",
    "ServiceUnavailableError",
    "TimeoutError",
]

_MAX_RETRY_SECONDS = 60.0
_MAX_PROBLEM_CHARACTERS = 300
"""Decoders quote the value that they refuse, whole."""

_MAX_ALLOWED = 32
"""So many allowed values are listed."""

_TYPES: dict[int, ErrorType] = {
    404: "NotFoundError",
    408: "TimeoutError",
    429: "RateLimitError",
    500: "InternalServerError",
    503: "ServiceUnavailableError",
    504: "TimeoutError",
}


class ErrorDetail(msgspec.Struct, kw_only=True):
    """What went wrong."""

    message: str
    type: ErrorType
    param: str | None
    """The parameter at fault, where there is one."""
    code: str | None


class ErrorBody(msgspec.Struct, kw_only=True):
    """The body of every response that is not a success."""

    error: ErrorDetail


class ApiError(Exception):
    """A response other than success."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.retry_after_seconds = retry_after_seconds
        """When to try again; clients are told up to a fifth more, so that not all come at once."""

    def body(self) -> bytes:
        """The JSON body."""
        detail = ErrorDetail(
            message=self.message,
            type=_TYPES.get(self.status, "invalid_request_error"),
            param=self.param,
            code=self.code,
        )
        return msgspec.json.encode(ErrorBody(error=detail))

    def headers(self) -> dict[str, str]:
        """When to try again, in whole seconds and in milliseconds."""
        if self.retry_after_seconds is None:
            return {}
        bounded = min(max(self.retry_after_seconds, 1.0), _MAX_RETRY_SECONDS)
        seconds = min(bounded * random.uniform(1.0, 1.2), _MAX_RETRY_SECONDS)
        milliseconds = round(1000 * seconds)
        return {
            "retry-after": str(math.ceil(milliseconds / 1000)),
            "retry-after-ms": str(milliseconds),
        }

    def response(self) -> Response:
        """The HTTP response."""
        return Response(
            self.body(), self.status, headers=self.headers(), media_type="application/json"
        )


class RequestTimedOutError(QuireError):
    """A request did not end within the configured time."""


class PromptTooLongError(RequestError):
    """A prompt leaves the model no room to answer; libraries of agents look for its code."""


def invalid_request(
    error: msgspec.MsgspecError | UnicodeError | RecursionError, kind: object
) -> ApiError:
    """A body that cannot be decoded, as a 400 that names the parameter.

    Parameters
    ----------
    kind
        What it was to be decoded to.
    """
    if isinstance(error, RecursionError):
        return ApiError(400, "The body is nested too deeply.", code="invalid_json")
    if isinstance(error, UnicodeError):
        return ApiError(400, "The body is not valid UTF-8.", code="invalid_json")
    if not isinstance(error, msgspec.ValidationError):
        return ApiError(400, f"The body is not valid JSON: {error}.", code="invalid_json")
    problem, _, place = str(error).partition(" - at `$")
    place = place.rstrip("`")
    if missing := re.search(r"missing required field `(\w+)`", problem):
        param = f"{place}.{missing[1]}".removeprefix(".")
        return ApiError(400, f"{param}: required.", param=param, code="missing_required_parameter")
    if len(problem) > _MAX_PROBLEM_CHARACTERS:
        problem = f"{problem[:_MAX_PROBLEM_CHARACTERS]}..."
    code = None
    if problem.startswith(("Invalid enum value", "Invalid value")):
        code = "invalid_value"
        allowed = ", ".join(map(repr, allowed_values(kind, place)[:_MAX_ALLOWED]))
        problem += f"; it may be {allowed}" if allowed else ""
    if not place:
        return ApiError(400, f"The body is not valid: {problem}.", code=code)
    param = place.removeprefix(".")
    return ApiError(400, f"{param}: {problem}.", param=param, code=code)


def from_quire_error(error: QuireError) -> ApiError:
    """An error of the engine as a response."""
    if isinstance(error, RequestError):
        is_length = isinstance(error, PromptTooLongError)
        code = "context_length_exceeded" if is_length else None
        return ApiError(400, str(error), param=error.parameter, code=code)
    if isinstance(error, EngineDeadError):
        return ApiError(503, str(error), code="engine_restarting", retry_after_seconds=2.0)
    if isinstance(error, RequestTimedOutError):
        return ApiError(504, str(error), code="timeout")
    return ApiError(500, str(error))


async def answer_api_error(_: Request, error: Exception) -> Response:
    """Handle `ApiError` and `QuireError` raised by a route."""
    if isinstance(error, QuireError):
        error = from_quire_error(error)
    if not isinstance(error, ApiError):
        raise error
    return error.response()


async def answer_http_error(request: Request, error: Exception) -> Response:
    """Handle what the router refuses: unknown routes and methods."""
    if not isinstance(error, HTTPException):
        raise error
    messages = {
        404: "There is no such route; GET /openapi.json lists them.",
        405: f"This route does not take {request.method}.",
    }
    response = ApiError(error.status_code, messages.get(error.status_code, error.detail)).response()
    response.headers.update(error.headers or {})
    if error.status_code == 405:
        # the router names the methods of the first route with this path alone
        response.headers["allow"] = ", ".join(_methods_of(request))
    return response


def _methods_of(request: Request) -> list[str]:
    """All methods that the request's path takes."""
    routes: list[Route] = request.app.state.routes
    matching = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    methods = {method for route in matching for method in route.methods or ()}
    return sorted(methods | {"HEAD"} if "GET" in methods else methods)


async def answer_unexpected_error(_: Request, error: Exception) -> Response:
    """Handle a bug: the log has it all, the client a plain 500."""
    _log.error("a request failed unexpectedly", exc_info=error)
    return ApiError(
        500, "The server failed on this request; its log says where.", code="internal_error"
    ).response()
