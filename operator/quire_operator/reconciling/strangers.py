"""Objects that no watch brings: what others made, without our labels.

Each is asked for by its name before one of ours is made there. Where many names of a namespace are
asked for at a time, one list of them answers, so that hundreds of new services do not ask thousands
of times.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from quire_operator.cluster.api import ClusterApi
from quire_operator.cluster.kinds import MADE, Kind
from quire_operator.cluster.store import Key

_FEW = 10
"""Names of one kind and namespace that are asked for one by one, within the time below."""
_SECONDS = 10.0
"""How long a list counts, and a question."""

_Body = Mapping[str, Any]
_Place = tuple[str, str]
"""Kind and namespace."""


class _Listed(NamedTuple):
    at: float
    """When it was asked for, monotonic."""
    bodies: Mapping[str, _Body]
    """By name, their metadata alone."""


class Strangers:
    """Asks for objects by name, or lists them."""

    def __init__(self, api: ClusterApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._asked: dict[_Place, list[float]] = defaultdict(list)
        self._listed: dict[_Place, _Listed] = {}
        self._locks: dict[_Place, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def find(self, kind: Kind, key: Key, since: float) -> _Body | None:
        """The metadata of an object; None if there is none.

        Parameters
        ----------
        since
            What there was then has to be in the answer: when the service was seen first.

        Raises
        ------
        ApiError
            The API server did not answer.
        """
        namespace, name = key
        place = (kind.kind, namespace)
        if kind not in MADE or self._is_rarely_asked(place):
            return await self._api.get_metadata(kind, namespace, name)
        async with self._locks[place]:  # the others wait for the same list
            listed = self._listed.get(place)
            if listed is None or listed.at < max(since, self._clock() - _SECONDS):
                self._forget_old()
                at = self._clock()
                bodies = await self._api.metadata(kind, namespace)
                listed = self._listed[place] = _Listed(
                    at, {one["metadata"]["name"]: one for one in bodies}
                )
        return listed.bodies.get(name)

    def _is_rarely_asked(self, place: _Place) -> bool:
        oldest = self._clock() - _SECONDS
        asked = self._asked[place] = [at for at in self._asked[place] if at >= oldest]
        if len(asked) >= _FEW:
            asked[-1] = self._clock()
            return False
        asked.append(self._clock())
        return True

    def _forget_old(self) -> None:
        """Of places that nobody asks about any more."""
        oldest = self._clock() - _SECONDS
        for place in [one for one, listed in self._listed.items() if listed.at < oldest]:
            del self._listed[place]
        for place in [one for one, asked in self._asked.items() if max(asked, default=0) < oldest]:
            del self._asked[place]
            if not self._locks[place].locked():
                del self._locks[place]
