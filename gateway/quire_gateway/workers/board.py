"""A state that one process publishes and others read, in memory that outlives each of them.

    header: number of the state, its length │ room for even states │ room for odd ones

A state is written beside the last one, then the header names it, in one write: who is killed in
between leaves the last one as it was, and who reads never waits. The memory has no name: it is
given to the processes of one gateway alone. What is not written takes no memory.
"""

import os
import struct

_HEADER = struct.Struct("=QQ")
_FIRST_AT = 4096
_ROOM_BYTES = 256 << 20
_MOST_TRIES = 3


class Board:
    """One state.

    Parameters
    ----------
    descriptor
        What `make_board` returned, here or in the process that started this one.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def number(self) -> int:
        """How many states were published; 0 for none."""
        return self._header()[0]

    def publish(self, state: bytes) -> None:
        """Put up another state; by one process only.

        Raises
        ------
        ValueError
            It is too large.
        """
        if len(state) > _ROOM_BYTES:
            raise ValueError(f"a state of {len(state)} bytes has no room")
        number = self._header()[0] + 1
        _write_all(self._descriptor, state, _place(number))
        os.pwrite(self._descriptor, _HEADER.pack(number, len(state)), 0)

    def read(self) -> bytes | None:
        """Return the last state; None if there is none, or others come faster than it is read."""
        for _ in range(_MOST_TRIES):
            number, length = self._header()
            if not number:
                return None
            state = os.pread(self._descriptor, length, _place(number))
            if self._header()[0] == number and len(state) == length:
                return state  # the next one is written elsewhere
        return None

    def _header(self) -> tuple[int, int]:
        number, length = _HEADER.unpack(os.pread(self._descriptor, _HEADER.size, 0))
        return number, length


def make_board(name: str) -> int:
    """Make a board's memory; returns its descriptor, to be given to children."""
    descriptor = os.memfd_create(name)
    os.ftruncate(descriptor, _FIRST_AT + 2 * _ROOM_BYTES)
    return descriptor


def _place(number: int) -> int:
    return _FIRST_AT + _ROOM_BYTES * (number % 2)


def _write_all(descriptor: int, data: bytes, at: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, at)
        at, rest = at + written, rest[written:]
