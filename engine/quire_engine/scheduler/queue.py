"""Requests that wait, and requests that run, in order of seniority."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from operator import attrgetter

from quire_engine.protocol.messages import Priority
from quire_engine.scheduler.request import Request

_by_seniority = attrgetter("seniority")
_FIRST_BACKGROUND = (int(Priority.BACKGROUND),)
"""Sorts before every background request, and after every interactive one."""


class SeniorityList:
    """Requests sorted by seniority; a preempted one falls back into its old place.

    A sorted list: insertion and removal are a binary search and a memory move, and the order is
    the same for waiting and for running requests.
    """

    __slots__ = ("_requests",)

    def __init__(self) -> None:
        self._requests: list[Request] = []

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def __getitem__(self, index: int) -> Request:
        return self._requests[index]

    def add(self, request: Request) -> None:
        """Insert a request in its place."""
        insort(self._requests, request, key=_by_seniority)

    def remove(self, request: Request) -> None:
        """Take a request out.

        Raises
        ------
        RuntimeError
            It is not in the list.
        """
        index = bisect_left(self._requests, request.seniority, key=_by_seniority)
        if index == len(self._requests) or self._requests[index] is not request:
            raise RuntimeError(f"bug: {request} is not in its queue")
        del self._requests[index]

    def first_background(self) -> Request | None:
        """Return the oldest request that is ordered as background, or None."""
        index = self._num_interactive()
        return self._requests[index] if index < len(self._requests) else None

    def background(self) -> list[Request]:
        """Return the requests that are ordered as background, the oldest first."""
        return self._requests[self._num_interactive() :]

    def _num_interactive(self) -> int:
        if not self._requests or self._requests[-1].seniority < _FIRST_BACKGROUND:
            return len(self._requests)
        return bisect_left(self._requests, _FIRST_BACKGROUND, key=_by_seniority)
