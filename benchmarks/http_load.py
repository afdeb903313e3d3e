"""A load generator cheap enough to share two cores with the server that it measures.

`python -m benchmarks.http_load URL MODEL --streams N --requests R --tokens T` keeps N connections
busy with R streamed chat completions in all (or with as many as `--seconds` brings), checks that
each ends as it should, and prints one line of JSON. It looks for marks in the bytes instead of
parsing HTTP and JSON: a full client costs more than the server.
"""

import argparse
import asyncio
import json
import resource
import time
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

import uvloop

from quire_engine.open_files import raise_open_files

_END_OF_RESPONSE = b"0\r\n\r\n"


@dataclass
class Tally:
    """What all connections saw together."""

    left: int | None
    """Requests not sent yet; None: as many as there is time for."""
    ends_at: float = float("inf")
    """No request is sent after this, by the performance counter."""
    tokens: int = 0
    events: int = 0
    failures: list[str] = field(default_factory=list)
    first_token_seconds: list[float] = field(default_factory=list)


class Connection(asyncio.Protocol):
    """Sends one request after the other over one connection."""

    def __init__(self, request: bytes, num_tokens: int, tally: Tally) -> None:
        self.done = asyncio.get_running_loop().create_future()
        self._request = request
        self._num_tokens = num_tokens
        self._tally = tally
        self._response = bytearray()
        self._sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        if not self._response:
            self._tally.first_token_seconds.append(time.perf_counter() - self._sent_at)
        self._response += data
        if data.endswith(_END_OF_RESPONSE):
            self._finish()
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self._tally.failures.append(f"connection lost: {exc}")
            self.done.set_result(None)

    def _send(self) -> None:
        self._sent_at = time.perf_counter()
        if self._tally.left == 0 or self._sent_at >= self._tally.ends_at:
            self.done.set_result(None)
            self._transport.close()
            return
        if self._tally.left is not None:
            self._tally.left -= 1
        self._transport.write(self._request)

    def _finish(self) -> None:
        response, self._response = bytes(self._response), bytearray()
        expected = b'"completion_tokens":%d,' % self._num_tokens
        if response.count(b"data: [DONE]") == 1 and expected in response:
            self._tally.tokens += self._num_tokens
            self._tally.events += response.count(b'"content":"') - 1  # the role's is empty
        else:
            self._tally.failures.append(response[:300].decode(errors="replace"))


def make_request(host: str, model: str, num_tokens: int) -> bytes:
    """A streamed chat completion as bytes on the wire."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Tell me a story about a lighthouse."}],
        "max_tokens": num_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }
    payload = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(payload)}\r\n\r\n"
    )
    return head.encode() + payload


async def generate_load(
    url: str,
    model: str,
    *,
    num_streams: int,
    num_requests: int,
    num_tokens: int,
    for_seconds: float | None = None,
) -> dict[str, object]:
    """Keep `num_streams` busy until all requests are answered; returns the figures.

    With `for_seconds`, requests are sent for so long, however many that are.
    """
    address = urlsplit(url)
    host, port = address.hostname or "127.0.0.1", address.port or 80
    tally = Tally(left=num_requests)
    if for_seconds is not None:
        tally = Tally(left=None, ends_at=time.perf_counter() + for_seconds)
    request = make_request(address.netloc, model, num_tokens)
    loop = asyncio.get_running_loop()
    started_at, cpu_before = time.perf_counter(), _cpu_seconds()
    connections = []
    for _ in range(num_streams):
        _, connection = await loop.create_connection(
            lambda: Connection(request, num_tokens, tally), host, port
        )
        connections.append(connection)
    await asyncio.gather(*(connection.done for connection in connections))
    seconds = time.perf_counter() - started_at
    first = sorted(tally.first_token_seconds)
    return {
        "seconds": seconds,
        "requests": len(first),
        "tokens": tally.tokens,
        "events": tally.events,
        "failures": tally.failures[:5],
        "num_failures": len(tally.failures),
        "cpu_seconds": _cpu_seconds() - cpu_before,
        "first_byte_seconds_p50": first[len(first) // 2],
        "first_byte_seconds_p99": first[len(first) * 99 // 100],
    }


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--seconds", type=float, help="instead of a number of requests")
    arguments = parser.parse_args()
    raise_open_files(arguments.streams)
    figures = uvloop.run(
        generate_load(
            arguments.url,
            arguments.model,
            num_streams=arguments.streams,
            num_requests=arguments.requests,
            num_tokens=arguments.tokens,
            for_seconds=arguments.seconds,
        )
    )
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
