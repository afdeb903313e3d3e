"""The core's output sockets never wait, and lose no token of a slow API server."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

from quire_engine.core.outputs import OutputSockets, merge_delta
from quire_engine.protocol.messages import (
    FinishReason,
    FromCore,
    LoadProgress,
    StepOutputs,
    TokenDelta,
)

DECODER = msgspec.msgpack.Decoder(FromCore)


def delta(request_id: str, *token_ids: int, **fields: object) -> TokenDelta:
    return TokenDelta(request_id=request_id, token_ids=list(token_ids), **fields)  # type: ignore[arg-type]


class Reader:
    """An API server's PULL socket that takes few messages at a time."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], address: str) -> None:
        self.socket = context.socket(zmq.PULL)
        self.socket.setsockopt(zmq.RCVHWM, 1)
        self.socket.bind(address)

    def read(self) -> FromCore:
        assert self.socket.poll(5000), "nothing came"
        message: FromCore = DECODER.decode(self.socket.recv())
        return message


Connect = Callable[[str], Reader]


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    with zmq.Context() as made:
        yield made


@pytest.fixture
def outputs(context: zmq.Context[zmq.Socket[bytes]]) -> Iterator[OutputSockets]:
    made = OutputSockets(context)
    yield made
    made.close(linger_seconds=0)


@pytest.fixture
def connect(
    context: zmq.Context[zmq.Socket[bytes]], outputs: OutputSockets, tmp_path: Path
) -> Iterator[Connect]:
    """Connects an API server of a name; returns what it reads with."""
    readers = []

    def connect_reader(name: str) -> Reader:
        reader = Reader(context, f"ipc://{tmp_path}/{name}")
        readers.append(reader)
        outputs.connect(name, f"ipc://{tmp_path}/{name}")
        return reader

    yield connect_reader
    for reader in readers:
        reader.socket.close(linger=0)


def test_merging_appends_tokens_and_keeps_the_newest_ending() -> None:
    older = delta("a", 1, 2, num_cached_tokens=16)
    merge_delta(older, delta("a", 3, finish_reason=FinishReason.STOP))

    assert older == delta("a", 1, 2, 3, num_cached_tokens=16, finish_reason=FinishReason.STOP)


def test_each_client_gets_its_own_deltas_of_a_step_in_one_message(
    outputs: OutputSockets, connect: Connect
) -> None:
    one, two = connect("one"), connect("two")

    outputs.send_deltas([("one", delta("a", 1)), ("two", delta("b", 2)), ("one", delta("c", 3))])

    assert one.read() == StepOutputs(deltas=[delta("a", 1), delta("c", 3)])
    assert two.read() == StepOutputs(deltas=[delta("b", 2)])


def test_a_client_that_does_not_read_loses_nothing_and_holds_up_nobody(
    outputs: OutputSockets, connect: Connect
) -> None:
    reader = connect("slow")
    num_steps = 6_000
    for step in range(num_steps):
        outputs.send_deltas([("slow", delta("a", step)), ("slow", delta("b", -step))])
    assert outputs.is_holding

    tokens: dict[str, list[int]] = {"a": [], "b": []}
    num_messages = 0
    while len(tokens["a"]) < num_steps:
        message = reader.read()
        assert isinstance(message, StepOutputs)
        num_messages += 1
        for each in message.deltas:
            tokens[each.request_id] += each.token_ids
        outputs.flush()

    assert tokens == {"a": list(range(num_steps)), "b": [-step for step in range(num_steps)]}
    assert num_messages < num_steps / 2
    assert not outputs.is_holding


def test_deltas_of_unknown_clients_are_dropped(outputs: OutputSockets) -> None:
    outputs.send_deltas([("gone", delta("a", 1))])

    assert not outputs.is_holding
    assert not outputs.has_hearers


def test_every_client_hears_what_is_for_all(outputs: OutputSockets, connect: Connect) -> None:
    readers = [connect("one"), connect("two")]
    progress = LoadProgress(stage="weights", fraction=0.5)
    outputs.send_to_all(progress)

    assert [reader.read() for reader in readers] == [progress, progress]
