"""Frames over a unix socket: all that one turn of the event loop has to say goes in one write.

What nobody waits for goes with what somebody does. Each write is a batch: its length in four bytes,
then a list of frames in msgpack.
"""

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

_CREDENTIALS = struct.Struct("3i")
_LENGTH_BYTES = 4
_MAX_BATCH_BYTES = 64 << 20
_MOMENT_SECONDS = 0.001

_log = logging.getLogger(__name__)
_encoder = msgspec.msgpack.Encoder()

T = TypeVar("T")


class Channel(asyncio.Protocol, Generic[T]):
    """One end.

    Parameters
    ----------
    decoder
        Of a batch from the other end.
    on_frame
        Called with each frame.
    on_open, on_lost
        Called with this channel when it can be used, and when it is gone.
    """

    def __init__(
        self,
        decoder: msgspec.msgpack.Decoder[list[T]],
        on_frame: "Callable[[Channel[T], T], None]",
        on_open: "Callable[[Channel[T]], None]",
        on_lost: "Callable[[Channel[T]], None]",
    ) -> None:
        self._decoder = decoder
        self._on_frame = on_frame
        self._on_open = on_open
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._unsent: list[msgspec.Struct] = []
        self._is_due = False
        """Whether this turn ends with a write."""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = transport  # type: ignore[assignment]
        self._on_open(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """See `asyncio.Protocol`."""
        self._transport = None
        self._on_lost(self)

    def is_own_user(self) -> bool:
        """Whether the other end is a process of the same user."""
        if self._transport is None:
            return False
        other = self._transport.get_extra_info("socket")
        asked = other.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, user, _ = _CREDENTIALS.unpack(asked)
        return bool(user == os.getuid())

    def send(self, frame: msgspec.Struct) -> None:
        """Send a frame, at the end of this turn."""
        self._unsent.append(frame)
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._flush)

    def send_later(self, frame: msgspec.Struct) -> None:
        """Send a frame that nobody waits for: with the next one, or a moment later."""
        self._unsent.append(frame)
        if not self._is_due and self._timer is None:
            self._timer = self._loop.call_later(_MOMENT_SECONDS, self._flush)

    def close(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take the batches that are complete."""
        if self._received:
            data = self._received + data
        at, size = 0, len(data)
        while size - at >= _LENGTH_BYTES:
            end = at + _LENGTH_BYTES + int.from_bytes(data[at : at + _LENGTH_BYTES])
            if end > size:
                break
            if not self._take(data[at + _LENGTH_BYTES : end]):
                return
            at = end
        self._received = data[at:]
        if len(self._received) > _MAX_BATCH_BYTES:
            self.close()

    def _take(self, batch: bytes) -> bool:
        try:
            frames = self._decoder.decode(batch)
        except msgspec.MsgspecError as error:
            _log.error("a process of this gateway says what cannot be read: %s", error)
            self.close()
            return False
        for frame in frames:
            try:
                self._on_frame(self, frame)
            except Exception as error:  # noqa: BLE001 - one request must not end all others
                context = {"message": "a frame failed unexpectedly", "exception": error}
                self._loop.call_exception_handler(context)
        return True

    def _flush(self) -> None:
        frames, self._unsent, self._is_due = self._unsent, [], False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if frames and self._transport is not None:
            batch = _encoder.encode(frames)
            self._transport.write(len(batch).to_bytes(_LENGTH_BYTES) + batch)
