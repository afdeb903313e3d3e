"""One request's deltas: merged while nobody reads, ended by whoever ends them first."""

import asyncio

import pytest

from quire_engine.core.stream import DeltaStream
from quire_engine.errors import EngineDeadError
from quire_engine.protocol.messages import FinishReason, TokenDelta


def delta(*token_ids: int, finish_reason: FinishReason | None = None) -> TokenDelta:
    return TokenDelta(request_id="a", token_ids=list(token_ids), finish_reason=finish_reason)


@pytest.fixture
def closed() -> list[str]:
    return []


@pytest.fixture
def stream(closed: list[str]) -> DeltaStream:
    return DeltaStream("a", closed.append)


async def test_deltas_that_wait_are_read_as_one(stream: DeltaStream) -> None:
    stream.put(delta(1))
    stream.put(delta(2, 3, finish_reason=FinishReason.LENGTH))

    assert [each async for each in stream] == [delta(1, 2, 3, finish_reason=FinishReason.LENGTH)]


async def test_a_waiting_reader_gets_deltas_as_they_come(stream: DeltaStream) -> None:
    reader = asyncio.create_task(anext(aiter(stream)))
    await asyncio.sleep(0)
    stream.put(delta(1))

    assert await reader == delta(1)


async def test_closing_ends_a_waiting_reader_and_tells_the_core(
    stream: DeltaStream, closed: list[str]
) -> None:
    async def read_all() -> list[TokenDelta]:
        return [each async for each in stream]

    reader = asyncio.create_task(read_all())
    await asyncio.sleep(0)
    stream.close()

    assert await reader == []
    assert closed == ["a"]


async def test_a_failure_comes_after_what_came_before_it(stream: DeltaStream) -> None:
    stream.put(delta(1))
    stream.fail(EngineDeadError("gone"))

    assert await anext(stream) == delta(1)
    with pytest.raises(EngineDeadError, match="gone"):
        await anext(stream)
    assert await anext(stream, None) is None


async def test_a_reader_that_was_cancelled_loses_nothing(stream: DeltaStream) -> None:
    reader = asyncio.create_task(anext(aiter(stream)))
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    stream.put(delta(1))

    assert await anext(stream) == delta(1)


async def test_leaving_the_block_closes(stream: DeltaStream, closed: list[str]) -> None:
    with stream:
        stream.put(delta(1))

    assert closed == ["a"]
    assert await anext(stream, None) is None
