"""What a connection answers by itself: to what is no request, or one too many."""

from quire_gateway.errors import ApiError


def too_many_connections() -> ApiError:
    """Return what a client is told that would be one too many."""
    message = "The gateway has as many connections as it takes; try again later."
    return ApiError(503, message, reason="too_many_connections", retry_after_seconds=2.0)


def too_many_bodies() -> ApiError:
    """Return what a request is told for whose body there is no memory now."""
    message = "The gateway holds as many requests as it can; try again later."
    return ApiError(503, message, reason="overloaded", retry_after_seconds=2.0)


def no_http() -> ApiError:
    """Return what bytes are told that mean nothing here."""
    message = "This is not HTTP, or not HTTP that is understood here."
    return ApiError(400, message, reason="invalid_http")


def long_head(most_bytes: int) -> ApiError:
    """Return what a request is told whose head is longer."""
    message = f"The request's head is longer than {most_bytes} bytes."
    return ApiError(431, message, reason="head_too_large")


def long_body(most_bytes: int) -> ApiError:
    """Return what a request is told whose body is longer."""
    message = f"The body is larger than {most_bytes} bytes; send less."
    return ApiError(413, message, reason="body_too_large")


def late_body(most_seconds: float) -> ApiError:
    """Return what a request is told whose body did not come in time."""
    message = f"The body did not come within {most_seconds:g} seconds."
    return ApiError(408, message, reason="timeout")
