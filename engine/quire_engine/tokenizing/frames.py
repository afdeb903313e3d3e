"""Frames on a pipe between a process and the one that started it: a length, then so many bytes."""

import os
import struct
import sys

import msgspec

LENGTH = struct.Struct("<I")


def frame(message: msgspec.Struct | bytes) -> bytes:
    """Write a message as msgpack, or bytes as they are, with its length before it."""
    payload = message if isinstance(message, bytes) else msgspec.msgpack.encode(message)
    return LENGTH.pack(len(payload)) + payload


def read_frame() -> bytes:
    """Read the next frame from the parent; end quietly when it is gone."""
    (length,) = LENGTH.unpack(_read_exactly(LENGTH.size))
    return _read_exactly(length)


def write_frame(message: msgspec.Struct | bytes) -> None:
    """Send the parent a frame."""
    data = memoryview(frame(message))
    while data:
        data = data[os.write(1, data) :]


def _read_exactly(count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = os.read(0, count - len(data))
        if not piece:
            sys.exit(0)
        data += piece
    return bytes(data)
