"""Bodies come in pieces, in time, and not too large."""

import asyncio
from typing import Any

import msgspec
import pytest
from starlette.requests import Request

from quire_engine.server import body
from quire_engine.server.body import read_json
from quire_engine.server.errors import ApiError

DECODER = msgspec.json.Decoder(list[int])


def arriving(*pieces: bytes, is_complete: bool = True) -> Request:
    """A request whose body comes in these pieces, and perhaps never ends."""
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": piece, "more_body": True} for piece in pieces
    ]
    if is_complete:
        messages.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> dict[str, Any]:
        return messages.pop(0) if messages else await asyncio.Future()

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


async def test_pieces_are_put_together() -> None:
    assert await read_json(arriving(b"[1,", b"2]"), DECODER, 5) == [1, 2]


async def test_a_body_is_too_large_as_soon_as_its_pieces_are() -> None:
    with pytest.raises(ApiError) as caught:
        await read_json(arriving(b"[1,", b"2,3", is_complete=False), DECODER, 5)

    assert caught.value.status == 413


async def test_a_body_that_does_not_come_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(body, "_BODY_SECONDS", 0.05)
    with pytest.raises(ApiError, match="did not come within") as caught:
        await read_json(arriving(b"[1,", is_complete=False), DECODER, 5)

    assert caught.value.status == 408


async def test_whole_numbers_with_a_point_are_taken_in_bodies_of_usual_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(body, "_MAX_FRACTIONS_BYTES", 8)
    assert await read_json(arriving(b"[1.0, 2]"), DECODER, 100) == [1, 2]

    with pytest.raises(ApiError, match=r"\[0\]: Expected `int`, got `float`"):
        await read_json(arriving(b"[1.0,  2]"), DECODER, 100)
