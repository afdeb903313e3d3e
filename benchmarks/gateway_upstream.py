"""An engine that costs next to nothing, for measuring what is in front of it.

`python -m benchmarks.gateway_upstream PORT`: short answers at once; streams of as many chunks as
`max_tokens` says, 20 a second, or, with `"flood": true`, as fast as they are taken. Its state says
that it has room for anything. `GET /streams` tells how many streams it works on.
"""

import asyncio
import re
import sys
from functools import cache

import msgspec
import uvloop

from quire_engine.profiles.step_time import constant_step_time
from quire_engine.protocol.messages import BlockCounts, Thresholds
from quire_engine.protocol.state import EngineState, Heartbeat, PrefixChunkLog, SequenceCounts
from quire_engine.startup_heap import freeze_startup_heap

CHUNK_SECONDS = 0.05
_NUM_TURNS = 50
"""Streams take turns of a millisecond, and those of one turn share a timer: with one each, the
engine and the load of 2,000 streams would need more than the core that they have."""
_MUCH = 1 << 30
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
_EVENT = b'data: {"id":"cmpl-1","choices":[{"index":0,"text":" word","finish_reason":null}]}\n\n'
_FLOOD = b"".join([b"%x\r\n%b\r\n" % (len(_EVENT), _EVENT)] * 200)
_BODY = b'{"id":"cmpl-1","choices":[{"index":0,"text":" word","finish_reason":"length"}]}'
_SHORT = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(
    _BODY
)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


_CHUNK, _LAST = chunk(_EVENT), chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def state() -> EngineState:
    return EngineState(
        schema_version=1,
        sequence=1,
        age_seconds=0.0,
        model_id="m",
        config_hash="c",
        is_ready=True,
        is_draining=False,
        tokens_per_block=16,
        max_model_len=8192,
        blocks=BlockCounts(total=_MUCH, held=1, free=_MUCH - 1, cached=0, reserved=1, queued=0),
        num_overshoot_blocks=0,
        sequences=SequenceCounts(running=1, waiting=0, slots=_MUCH),
        pressure=None,
        thresholds=Thresholds(
            admission=0.95, background=0.8, max_queue_seconds=30.0, max_waiting_requests=1000
        ),
        output_lengths=None,
        step_time=constant_step_time(0.01),
        z=2.0,
        gateways={},
        prefix_chunks=PrefixChunkLog(first_number=0, next_number=0),
        num_filled_tokens=16,
        num_preemptions=0,
        num_recomputed_tokens=0,
        num_core_restarts=0,
    )


class Connection(asyncio.Protocol):
    """Takes requests one after the other."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._received = b""
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._floods = False
        self._num_left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        _streaming.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def pause_writing(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def resume_writing(self) -> None:
        if self._floods:
            self._flood()

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[:end]
            found = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
            size = end + 4 + (int(found[1]) if found else 0)
            if len(self._received) < size:
                return
            body, self._received = self._received[end + 4 : size], self._received[size:]
            self._answer(head, body)

    def _answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"GET /state/stream"):
            event = b"event: state\ndata: %b\n\n" % msgspec.json.encode(state())
            self._transport.write(_STREAM_HEAD + chunk(event))
            self._beat()
        elif head.startswith(b"GET /streams"):
            self._tell(b"%d}" % len(_streaming))
        elif head.startswith(b"GET /v1/models"):  # smg asks for it
            self._tell(b'{"object":"list","data":[{"id":"m","object":"model"}]}')
        elif b'"stream":true' in (body := body.replace(b" ", b"")):
            _streaming.add(self)
            self._transport.write(_STREAM_HEAD)
            if b'"flood":true' in body:
                self._floods = True
                self._flood()
                return
            found = re.search(rb'"max_tokens": *(\d+)', body)
            self._num_left = int(found[1]) if found else 1
            _pacer().add(self)
        else:
            self._transport.write(_SHORT + _BODY)

    def _tell(self, text: bytes) -> None:
        line = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
        self._transport.write(line % (len(text), text))

    def _beat(self) -> None:
        event = b"event: heartbeat\ndata: %b\n\n" % msgspec.json.encode(
            Heartbeat(sequence=1, age_seconds=0.0)
        )
        self._transport.write(chunk(event))
        self._timer = self._loop.call_later(1.0, self._beat)

    def _flood(self) -> None:
        self._timer = self._loop.call_soon(self._flood)
        self._transport.write(_FLOOD)

    def step(self) -> bool:
        """Send a chunk, if the client is there and has not had all; returns whether it was so."""
        if self not in _streaming:
            return False
        if self._num_left > 0:
            self._num_left -= 1
            self._transport.write(_CHUNK)
            return True
        _streaming.discard(self)
        self._transport.write(_LAST)
        return False


class Pacer:
    """Lets streams take turns, each every `CHUNK_SECONDS`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._turns: list[list[Connection]] = [[] for _ in range(_NUM_TURNS)]
        self._number, self._at = 0, self._loop.time()
        self._next()

    def add(self, connection: Connection) -> None:
        """Begin with the next turn."""
        self._turns[self._number % _NUM_TURNS].append(connection)

    def _next(self) -> None:
        turn, self._number = self._number % _NUM_TURNS, self._number + 1
        self._turns[turn] = [one for one in self._turns[turn] if one.step()]
        self._at += CHUNK_SECONDS / _NUM_TURNS
        self._loop.call_at(self._at, self._next)


_pacer = cache(Pacer)
_streaming: set[Connection] = set()


async def serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", port, backlog=4096)
    freeze_startup_heap()
    print(f"on 127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
