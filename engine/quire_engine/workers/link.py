"""Messages over a pair of sockets, in order; closed as soon as the other process is gone.

length (4 bytes, little endian) │ msgpack
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Generic, TypeVar, cast

import msgspec

from quire_engine.protocol.messages import Message

_LENGTH_BYTES = 4
M = TypeVar("M", bound=Message)


class Link(asyncio.Protocol, Generic[M]):
    """One end; belongs to one event loop.

    Parameters
    ----------
    kind
        The messages, a union, that come from the other end.
    on_close
        Called once, when the other end is gone or `close` was called.
    """

    def __init__(
        self, kind: object, on_message: Callable[[M], None], on_close: Callable[[], None]
    ) -> None:
        self._decoder = msgspec.msgpack.Decoder(cast("type[M]", kind))
        self._encoder = msgspec.msgpack.Encoder()
        self._on_message = on_message
        self._on_close = on_close
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    async def open(self, end: socket.socket) -> None:
        """Begin to read and write."""
        end.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=end)

    @property
    def num_unsent_bytes(self) -> int:
        """How much waits for the other end to read on."""
        return self._transport.get_write_buffer_size() if self._transport else 0

    def send(self, message: Message) -> None:
        """Send a message; never waits. One that cannot arrive any more is lost."""
        if self._transport is not None and not self._transport.is_closing():
            payload = self._encoder.encode(message)
            self._transport.write(len(payload).to_bytes(_LENGTH_BYTES, "little") + payload)

    def close(self) -> None:
        """Send what was written and close."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Hand over every message that is complete."""
        self._received += data
        while len(self._received) >= _LENGTH_BYTES:
            end = _LENGTH_BYTES + int.from_bytes(self._received[:_LENGTH_BYTES], "little")
            if len(self._received) < end:
                return
            payload = bytes(self._received[_LENGTH_BYTES:end])
            del self._received[:end]
            self._on_message(self._decoder.decode(payload))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Tell whoever has this end."""
        self._on_close()
