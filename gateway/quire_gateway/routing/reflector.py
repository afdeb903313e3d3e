"""A copy of some objects of the API server, kept true by a list and watches that follow it.

    list ──► watch from its version ──► end of its time: watch from the last event or bookmark
      ▲          │
      └──────────┴── the version is too old (410), or an answer other than success: list anew

While the API server cannot be reached the copy stays as it was; tries are ever further apart, and
not at the same moments in all gateways.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import aiohttp

Body = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name."""

_LIST_SECONDS = 30.0
_PAGE = 500
_WATCH_SECONDS = (60.0, 90.0)
"""A watch whose connection is dead without a word is noticed after so long."""
_GRACE_SECONDS = 10.0
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 15.0
_GONE = 410
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)
"""What comes of an answer that is not what an API server says."""

_log = logging.getLogger(__name__)


class ListCall(Protocol):
    """A `list_..._without_preload_content` of the API server's client."""

    def __call__(self, **options: Any) -> Awaitable[aiohttp.ClientResponse]:  # noqa: ANN401
        """Ask for a list, or for a watch with `watch`."""


class _RefusedError(Exception):
    """The API server answered, and not with what was asked for."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status} {message[:300]}")
        self.status = status


class Reflector:
    """Keeps a copy of the objects of one kind, in one namespace or all.

    Parameters
    ----------
    what
        Their name in the log.
    selector
        Labels of those that matter.
    on_change
        Called when the copy has changed, or whether it can be kept true.
    chance
        A number from 0 to below 1, evenly.
    """

    def __init__(
        self,
        what: str,
        call: ListCall,
        selector: str,
        *,
        on_change: Callable[[], None],
        chance: Callable[[], float],
    ) -> None:
        self._what = what
        self._call = call
        self._selector = selector
        self._on_change = on_change
        self._chance = chance
        self._version: str | None = None
        self._pause = _FIRST_PAUSE_SECONDS
        self.objects: dict[Key, Body] = {}
        self.is_listed = False
        """Whether there has been a list yet."""
        self.problem = ""
        """Why the copy may be old; empty while it is not."""

    async def run(self) -> None:
        """Keep it true until cancelled."""
        while True:
            try:
                if self._version is None:
                    await self._list()
                await self._watch(self._version or "")
                pause = _FIRST_PAUSE_SECONDS
            except (_RefusedError, aiohttp.ClientError, OSError, *_UNREADABLE) as error:
                if isinstance(error, (_RefusedError, *_UNREADABLE)):
                    self._version = None
                if isinstance(error, _RefusedError) and error.status == _GONE:
                    pause = _FIRST_PAUSE_SECONDS
                else:
                    self._note(f"{self._what}: {str(error) or type(error).__name__}")
                    pause = self._pause
                    self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
            await asyncio.sleep(pause * (0.5 + self._chance()))

    async def _list(self) -> None:
        found: dict[Key, Body] = {}
        more: str | None = None
        while True:
            async with asyncio.timeout(_LIST_SECONDS):
                options = {"limit": _PAGE} | ({"_continue": more} if more else {})
                answer = await self._ask(_LIST_SECONDS, **options)
                try:
                    page = json.loads(await answer.read())
                finally:
                    answer.release()
            found |= {key_of(body): body for body in page.get("items") or ()}
            more = page["metadata"].get("continue")
            if not more:
                break
        self.objects, self._version = found, page["metadata"]["resourceVersion"]
        self.is_listed = True
        self._well()
        self._on_change()

    async def _watch(self, version: str) -> None:
        least, most = _WATCH_SECONDS
        seconds = least + (most - least) * self._chance()
        answer = await self._ask(
            seconds + _GRACE_SECONDS,
            watch=True,
            allow_watch_bookmarks=True,
            resource_version=version,
            timeout_seconds=int(seconds),
        )
        try:
            self._well()
            async for event in _events(answer):
                self._take(event["type"], event["object"])
        finally:
            answer.close()  # what is still to come is not waited for

    def _take(self, kind: str, body: Body) -> None:
        if kind == "ERROR":
            raise _RefusedError(int(body.get("code") or 0), str(body.get("message")))
        self._version = body["metadata"]["resourceVersion"]
        if kind == "BOOKMARK":
            return
        if kind == "DELETED":
            self.objects.pop(key_of(body), None)
        else:
            self.objects[key_of(body)] = body
        self._on_change()

    async def _ask(self, seconds: float, **options: Any) -> aiohttp.ClientResponse:  # noqa: ANN401
        answer = await self._call(
            label_selector=self._selector, _request_timeout=seconds, **options
        )
        if answer.status != 200:
            try:
                raise _RefusedError(answer.status, (await answer.text())[:2000])
            finally:
                answer.release()
        return answer

    def _well(self) -> None:
        self._pause = _FIRST_PAUSE_SECONDS
        self._note("")

    def _note(self, problem: str) -> None:
        """Say what is wrong, once, and that it is over."""
        if bool(problem) != bool(self.problem):
            if problem:
                _log.warning(
                    "routing stays as it was, the API server cannot be followed: %s", problem
                )
            else:
                _log.info("%s: the API server can be followed again", self._what)
        if problem != self.problem:
            self.problem = problem
            self._on_change()


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[Body]:
    """Events of a watch, one a line: as long as an object, which `readline` would refuse."""
    begun: list[bytes] = []
    async for piece in answer.content.iter_any():
        *ends, rest = piece.split(b"\n")
        for end in ends:
            yield json.loads(b"".join([*begun, end]))
            begun = []
        begun.append(rest)


def key_of(body: Body) -> Key:
    """Namespace and name of an object."""
    metadata = body["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
