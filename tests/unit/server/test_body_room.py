"""What the bodies of all requests take together is bounded, and given back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire_engine.server.body_room import FREE_BYTES, BodyRoom, CountedBody
from quire_engine.server.errors import ApiError


def arriving(room: BodyRoom, *sizes: int) -> CountedBody:
    """A request whose body comes in pieces of these sizes."""
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": bytes(size), "more_body": True} for size in sizes
    ]
    messages.append({"type": "http.disconnect"})

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    return CountedBody(receive, room)


async def test_a_body_of_usual_size_needs_no_room() -> None:
    full = BodyRoom(1)
    body = arriving(full, FREE_BYTES // 2, FREE_BYTES // 2)
    for _ in range(3):
        await body.receive()

    assert full.num_bytes == 0


async def test_a_large_body_is_refused_while_there_is_no_room_and_taken_afterwards() -> None:
    room = BodyRoom(100)
    first, second = (arriving(room, FREE_BYTES + 60) for _ in range(2))
    await first.receive()

    with pytest.raises(ApiError) as caught:
        await second.receive()
    second.end()
    assert caught.value.status == 503
    assert "retry-after" in caught.value.headers()
    assert room.num_bytes == 60

    first.end()
    await arriving(room, FREE_BYTES + 100).receive()
    assert room.num_bytes == 100


@given(st.lists(st.lists(st.integers(0, 2 * FREE_BYTES), max_size=5), max_size=6))
async def test_what_was_taken_is_given_back_however_bodies_come(bodies: list[list[int]]) -> None:
    room = BodyRoom(4 * FREE_BYTES)
    requests = [arriving(room, *sizes) for sizes in bodies]
    for request, sizes in zip(requests, bodies, strict=True):
        try:
            for _ in sizes:
                await request.receive()
        except ApiError:
            pass
        assert 0 <= room.num_bytes <= 4 * FREE_BYTES
    for request in requests:
        request.end()
        request.end()

    assert room.num_bytes == 0
