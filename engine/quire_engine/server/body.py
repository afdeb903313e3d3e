"""Reading and decoding request bodies."""

import asyncio
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from quire_engine.paused_collection import no_garbage_collected
from quire_engine.server.errors import ApiError, invalid_request

T = TypeVar("T")

_MAX_FRACTIONS_BYTES = 1 << 20
"""Numbers like 5.0 are taken for whole ones in bodies up to this: it takes much longer to try than
to decode, and any body that is wrong is tried."""

_BODY_SECONDS = 60.0
"""A body must come within this: who begins one and falls silent would be waited for for ever."""


async def read_json(
    request: Request, decoder: msgspec.json.Decoder[T], max_bytes: int, *, empty: bytes = b""
) -> T:
    """Read the body and decode it, which checks its types and ranges.

    Parameters
    ----------
    empty
        What a body without a byte stands for.

    Raises
    ------
    ApiError
        413 for a body over `max_bytes`, 408 for one that does not come, 400 for one that is not
        what the decoder wants.
    """
    body = await _read(request, max_bytes) or empty
    try:
        # a body can be a million lists: three quarters of the time of the worst were collections
        with no_garbage_collected():
            return _decode(body, decoder)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise invalid_request(error, decoder.type) from None


def _decode(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:
        if len(body) > _MAX_FRACTIONS_BYTES:
            raise
        whole = _without_fractions(msgspec.json.decode(body))
        return msgspec.convert(whole, decoder.type)


def _without_fractions(value: object) -> object:
    """Turn 5.0 into 5: JSON knows one kind of number, and some languages write all with a point."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_without_fractions(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_fractions(item) for key, item in value.items()}
    return value


async def _read(request: Request, max_bytes: int) -> bytes:
    announced = request.headers.get("content-length", "0")
    if announced.isdigit() and int(announced) > max_bytes:
        raise _too_large(max_bytes)
    chunks, size = [], 0
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for chunk in request.stream():
                chunks.append(chunk)
                size += len(chunk)
                if size > max_bytes:
                    raise _too_large(max_bytes)
    except TimeoutError:
        raise ApiError(408, f"The body did not come within {_BODY_SECONDS:g} seconds.") from None
    except ClientDisconnect:
        raise ApiError(400, "The connection was closed before the whole body came.") from None
    return b"".join(chunks)


def _too_large(max_bytes: int) -> ApiError:
    return ApiError(
        413, f"The body is larger than {max_bytes} bytes; send less.", code="body_too_large"
    )
