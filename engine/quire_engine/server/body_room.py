"""A bound on what the bodies of all requests together take of memory.

Each body has a bound of its own, and thousands of connections may have one each. The first bytes
of every body are free: who fills the room keeps large requests out, and no usual one.
"""

from starlette.types import Message, Receive

from quire_engine.server.errors import ApiError

FREE_BYTES = 64 << 10
"""Of each body; all connections together may hold that much besides."""
_RETRY_SECONDS = 2.0


class BodyRoom:
    """Bytes that bodies may have between their arrival and the end of their requests."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.num_bytes = 0
        """Taken now."""

    def take(self, num_bytes: int) -> bool:
        """Take so many more, if there is room."""
        has_room = self.num_bytes + num_bytes <= self._max_bytes
        self.num_bytes += num_bytes if has_room else 0
        return has_room

    def give_back(self, num_bytes: int) -> None:
        """Return what was taken."""
        self.num_bytes -= num_bytes


class CountedBody:
    """Receives for one request, and counts its body into the room.

    Parameters
    ----------
    receive
        The server's.
    """

    __slots__ = ("_num_bytes", "_num_taken", "_receive", "_room")

    def __init__(self, receive: Receive, room: BodyRoom) -> None:
        self._receive = receive
        self._room = room
        self._num_bytes = 0
        self._num_taken = 0

    async def receive(self) -> Message:
        """Receive the next message.

        Raises
        ------
        ApiError
            503: there is no room for this piece of the body.
        """
        message = await self._receive()
        self._num_bytes += len(message.get("body", b""))
        num_more = self._num_bytes - FREE_BYTES - self._num_taken
        if num_more > 0:
            self._take(num_more)
        return message

    def _take(self, num_bytes: int) -> None:
        if not self._room.take(num_bytes):
            raise ApiError(
                503,
                "The server holds as many bytes of large requests as it may; try again later.",
                code="too_many_body_bytes",
                retry_after_seconds=_RETRY_SECONDS,
            )
        self._num_taken += num_bytes

    def end(self) -> None:
        """Give back what the body took, for its request has ended; once."""
        self._room.give_back(self._num_taken)
        self._num_taken = 0
