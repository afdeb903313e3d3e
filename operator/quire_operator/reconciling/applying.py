"""The difference between what should be and what is, to the API server.

An object is applied when its content is not what was applied last, or when somebody changed or
deleted it since. What should not be any more is deleted.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from quire_operator.cluster.api import Body, ClusterApi
from quire_operator.cluster.kinds import BY_NAME, MADE
from quire_operator.cluster.store import Key, Store, key_of, mark_of
from quire_operator.errors import ApiError
from quire_operator.planner.names import MANAGER
from quire_operator.resource.reading import InferenceService

_Place = tuple[str, Key]
"""Kind and key."""


class Applier:
    """Applies plans, and remembers what it applied."""

    def __init__(self, api: ClusterApi, store: Store) -> None:
        self._api = api
        self._store = store
        self._applied: dict[_Place, tuple[str, str]] = {}
        """Content and mark of each object as of its last apply."""

    def forget(self, service: Key) -> None:
        """Apply everything of a service the next time, whatever is known."""
        for kind in MADE:
            for body in self._store.parts(kind.kind, service):
                self._applied.pop((kind.kind, key_of(body)), None)

    async def apply(self, service: InferenceService, objects: Sequence[Body]) -> int:
        """Make a service's objects as planned; returns how many were written.

        Raises
        ------
        ApiError
            One could not be: the first of them. All others are as they should be, so that one
            refused object holds no other back; nothing was deleted.
        """
        num_written = 0
        first_error: ApiError | None = None
        for wanted_body in objects:
            try:
                num_written += await self._apply_one(wanted_body)
            except ApiError as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error
        wanted = {(body["kind"], key_of(body)) for body in objects}
        for kind in MADE:
            for body in self._store.parts(kind.kind, service.key):
                if (kind.kind, key_of(body)) not in wanted and _is_made_for(body, service):
                    num_written += await self._delete(kind.kind, body)
        return num_written

    async def _apply_one(self, body: Body) -> bool:
        place = (body["kind"], key_of(body))
        content = _hash(body)
        live = self._store.get(*place)
        if live is not None and self._applied.get(place) == (content, mark_of(live)):
            return False
        result = await self._api.apply(body, MANAGER)
        self._applied[place] = (content, mark_of(result))
        return True

    async def _delete(self, kind: str, body: Any) -> bool:  # noqa: ANN401
        if "deletionTimestamp" in body["metadata"]:
            return False
        namespace, name = key_of(body)
        await self._api.delete(BY_NAME[kind], namespace, name, body["metadata"].get("uid"))
        self._applied.pop((kind, (namespace, name)), None)
        return True


def _is_made_for(body: Any, service: InferenceService) -> bool:  # noqa: ANN401
    """Whether this service is the object's controller: what others made with our label stays."""
    owners = body["metadata"].get("ownerReferences", [])
    return any(one.get("uid") == service.uid and one.get("controller") for one in owners)


def _hash(body: Body) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
