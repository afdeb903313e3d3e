"""Requests to a router, as cheap for the one who sends them as can be."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

_HEAD = "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
CHUNK_SECONDS = 0.05
_EVENT_START = b"data: {"


def request_of(num_words: int = 100, **changes: object) -> bytes:
    body = json.dumps({"model": "m", "prompt": "word " * num_words, "max_tokens": 1} | changes)
    return f"{_HEAD}content-length: {len(body)}\r\n\r\n{body}".encode()


SHORT = tuple(request_of(60 + number % 80, max_tokens=2 ** (number % 8)) for number in range(160))
"""Requests that differ in their lengths, so that nothing is the same twice in a row."""


class Client(asyncio.Protocol):
    """Sends a request, and calls back when its answer is complete."""

    def __init__(self, end: bytes) -> None:
        self._end = end
        self._received = bytearray()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError("closed before the answer was complete"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._received.endswith(self._end) and not self.done.done():
            if not self._received.startswith(b"HTTP/1.1 200"):
                self.done.set_exception(ValueError(bytes(self._received[:300])))
            else:
                self.done.set_result(None)
        del self._received[12:-400]

    async def ask(self, request: bytes) -> None:
        self._received.clear()
        self.done = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        await self.done

    def body(self) -> bytes:
        """Of the last answer, if it was short."""
        return bytes(self._received).partition(b"\r\n\r\n")[2]

    def close(self) -> None:
        if not self.done.done():
            self.done.cancel()
        self.transport.close()


class StreamClient(asyncio.Protocol):
    """Follows one stream: when each of its chunks came."""

    _LONGEST = len(_EVENT_START) - 1

    def __init__(self) -> None:
        self.times: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError("closed before the stream was complete"))

    def data_received(self, data: bytes) -> None:
        data = self._tail + data
        for _ in range(data.count(_EVENT_START)):
            self.times.append(time.perf_counter())
        self._tail = data[-self._LONGEST :]
        if data.endswith(b"0\r\n\r\n") and not self.done.done():
            self.done.set_result(None)


async def connect(port: int, end: bytes = b"}") -> Client:
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(lambda: Client(end), "127.0.0.1", port)
    return client


async def answers(port: int) -> bool:
    """Whether a router answers, as soon as it does; within a minute or so."""
    for _ in range(300):
        try:
            client = await connect(port)
            async with asyncio.timeout(2):
                await client.ask(SHORT[0])
            client.close()
        except (OSError, ValueError, TimeoutError):
            await asyncio.sleep(0.2)
        else:
            return True
    return False


async def short(port: int, num_connections: int, num_requests: int) -> float:
    """Requests per second, each connection asking as fast as it is answered."""

    async def ask_on(first: int) -> None:
        client = await connect(port)
        for number in range(num_requests // num_connections):
            await client.ask(SHORT[(first + number) % len(SHORT)])
        client.close()

    started_at = time.perf_counter()
    await asyncio.gather(*(ask_on(5 * one) for one in range(num_connections)))
    return num_requests / (time.perf_counter() - started_at)


async def latency(port: int, rate: float, seconds: float) -> list[float]:
    """Seconds of short answers, sent at an even rate whatever is answered."""
    clients = [await connect(port) for _ in range(32)]
    taken, tasks = [], []

    async def ask(client: Client, request: bytes) -> None:
        started_at = time.perf_counter()
        await client.ask(request)
        taken.append(time.perf_counter() - started_at)
        clients.append(client)

    loop = asyncio.get_running_loop()
    begin = loop.time()
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(begin + number / rate - loop.time(), 0))
        if clients:
            tasks.append(asyncio.create_task(ask(clients.pop(0), SHORT[number % len(SHORT)])))
    await asyncio.gather(*tasks)
    for client in clients:
        client.close()
    return sorted(taken)


async def streams(port: int, num_streams: int, num_chunks: int) -> tuple[int, list[float]]:
    """Chunks that came, of so many streams at once, and by how much later than even, in order.

    A stream's clock starts with its first chunk; whatever comes before its time counts as 0.
    """
    request = request_of(stream=True, max_tokens=num_chunks)
    loop = asyncio.get_running_loop()
    lags: list[float] = []

    async def follow(number: int) -> int:
        await asyncio.sleep(number * CHUNK_SECONDS * 10 / num_streams)  # spread evenly
        _, client = await loop.create_connection(StreamClient, "127.0.0.1", port)
        client.transport.write(request)
        with suppress(ConnectionError):  # what is missing is counted
            await client.done
        client.transport.close()
        times = client.times
        lags.extend(
            max(at - times[0] - index * CHUNK_SECONDS, 0.0) for index, at in enumerate(times)
        )
        return len(times)

    counts = await asyncio.gather(*(follow(number) for number in range(num_streams)))
    return sum(counts), sorted(lags)


@asynccontextmanager
async def stopped_readers(port: int, num_streams: int) -> AsyncIterator[None]:
    """Clients of streams that send as fast as they can, who read nothing."""
    clients = [await connect(port, b"\0") for _ in range(num_streams)]
    for client in clients:
        client.transport.write(request_of(stream=True, flood=True))
        client.transport.pause_reading()
    try:
        yield
    finally:
        for client in clients:
            client.done.cancel()
            client.transport.abort()


async def seconds_until_freed(
    port: int, num_streams: int, num_open: Callable[[], Awaitable[int]]
) -> float:
    """How long after its clients have left the engine works for them."""
    clients = [await connect(port, b"\0") for _ in range(num_streams)]
    for client in clients:
        client.transport.write(request_of(stream=True, max_tokens=10_000))
    while await num_open() < num_streams:  # noqa: ASYNC110 - another program tells it
        await asyncio.sleep(0.01)
    left_at = time.perf_counter()
    for client in clients:
        client.close()
    while await num_open() > 0:
        if time.perf_counter() - left_at > 60:
            return 60.0
        await asyncio.sleep(0.002)
    return time.perf_counter() - left_at
