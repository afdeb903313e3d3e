"""The difference between what should be and what is, to the API server.

An object is applied when its content is not what was applied last, or when somebody changed or
deleted it since; never one that is somebody else's. Secrets are not watched: one is compared with
the API server's when there is a doubt. What should not be any more is deleted, and what somebody
made immutable is made anew.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from quire_operator.cluster.api import Body, ClusterApi
from quire_operator.cluster.kinds import BY_NAME, MADE, SECRETS
from quire_operator.cluster.store import Key, Mark, Store, key_of, mark_of
from quire_operator.errors import ApiError, ForeignObjectError
from quire_operator.planner.names import MANAGER
from quire_operator.reconciling import ingress_class
from quire_operator.reconciling.ownership import OURS_ALONE, owner_beside, part_of_others
from quire_operator.reconciling.strangers import Strangers
from quire_operator.resource.reading import InferenceService

_Place = tuple[str, Key]
"""Kind and key."""

_INVALID = 422
_MAY_BE_IMMUTABLE = ("ConfigMap", "Secret")
_WATCHED = frozenset(kind.kind for kind in MADE)


class Change(NamedTuple):
    """An object that is otherwise than before."""

    what: str
    """Kind and name."""
    why: str


class _Last(NamedTuple):
    """An object as it was applied."""

    content: str
    mark: Mark
    uid: str


class Refused(NamedTuple):
    """An object that the API server did not take."""

    what: str
    """Kind and name."""
    error: ApiError


@dataclass(kw_only=True)
class Applied:
    """What became of one plan."""

    changes: list[Change] = field(default_factory=list)
    num_writes: int = 0
    """Requests that write, those that found everything right among them."""
    refused: list[Refused] = field(default_factory=list)


class Applier:
    """Applies plans, and remembers what it applied."""

    def __init__(self, api: ClusterApi, store: Store, clock: Callable[[], float]) -> None:
        self._api = api
        self._store = store
        self._strangers = Strangers(api, clock)
        self._applied: dict[Key, dict[_Place, _Last]] = defaultdict(dict)
        """By service, each object as of its last apply."""
        self._doubted: set[Key] = set()

    def forget(self, service: Key) -> None:
        """A service is gone."""
        self._applied.pop(service, None)
        self._doubted.discard(service)

    def doubt(self, service: Key) -> None:
        """Look the next time at what is not watched: somebody may have changed it."""
        self._doubted.add(service)

    async def apply(self, service: InferenceService, objects: Sequence[Body]) -> Applied:
        """Make a service's objects as planned.

        One that is refused holds no other back, but nothing is deleted then.
        """
        done = Applied()
        for wanted_body in objects:
            what = f"{wanted_body['kind']} {wanted_body['metadata']['name']}"
            try:
                await self._apply_one(service, wanted_body, what, done)
            except ApiError as error:
                done.refused.append(Refused(what, error))
        if not done.refused:
            self._doubted.discard(service.key)
            await self._delete_others(service, objects, done)
        return done

    async def _apply_one(
        self, service: InferenceService, body: Body, what: str, done: Applied
    ) -> None:
        place = (body["kind"], key_of(body))
        content = _hash(body)
        last = self._applied[service.key].get(place)
        is_same_plan = last is not None and last.content == content
        if is_same_plan and place[0] not in _WATCHED and service.key not in self._doubted:
            return
        live = await self._find(service.key, *place)
        mark = None if live is None else mark_of(live)
        if is_same_plan and last is not None and last.mark == mark:
            return
        if live is not None and (owner := owner_beside(live, service, self._store)):
            raise _foreign(what, owner)
        result = await self._write(body, is_new=live is None)
        made = _Last(content, mark_of(result), result["metadata"].get("uid", ""))
        self._applied[service.key][place] = made
        done.num_writes += 1
        if why := _why(mark, last, made):
            done.changes.append(Change(what, why))

    async def _write(self, body: Body, *, is_new: bool) -> Body:
        """Apply an object, without what others added to what is ours alone."""
        kind = body["kind"]
        part = OURS_ALONE.get(kind, ())
        try:
            result = await self._api.apply(body, MANAGER)
        except ApiError as error:
            if error.status != _INVALID or is_new:
                raise
            if kind in _MAY_BE_IMMUTABLE:
                return await self._make_anew(body, error)
            if not part:
                raise
            # by itself, or only together with theirs: a port of ours under another number
            await self._put_right(body, *part)
            return await self._api.apply(body, MANAGER)
        if part and part_of_others(kind, result["metadata"]):
            return await self._put_right(body, *part)
        return result

    async def _put_right(self, body: Body, *part: str) -> Body:
        if body["kind"] == ingress_class.KIND:
            body = await ingress_class.with_class(self._api, body)
        return await self._api.put_right(body, MANAGER, *part)

    async def _make_anew(self, body: Body, error: ApiError) -> Body:
        """Delete an object of ours that somebody made immutable, and make it again.

        Secrets the operator may not delete: what to do is said.
        """
        kind, (namespace, name) = BY_NAME[body["kind"]], key_of(body)
        live = await self._api.get(kind, namespace, name)
        if live is None or not live.get("immutable"):
            raise error
        if kind is SECRETS:
            remedy = f"`kubectl delete secret {name} --namespace={namespace}`, and it is made anew"
            words = f"somebody made it immutable, and the operator may delete no Secret: {remedy}"
            raise ApiError(f"{error}; {words}", error.status, words) from error
        await self._api.delete(kind, namespace, name, live["metadata"]["uid"])
        return await self._api.apply(body, MANAGER)

    async def _find(self, service: Key, kind: str, key: Key) -> Mapping[str, Any] | None:
        """An object as it is: what others made has not our labels, and no watch brings it."""
        found = self._store.get(kind, key) if kind in _WATCHED else None
        if found is not None:
            return found
        since = self._store.seen_at(service)
        return await self._strangers.find(BY_NAME[kind], key, since)

    async def _delete_others(
        self, service: InferenceService, objects: Sequence[Body], done: Applied
    ) -> None:
        wanted = {(body["kind"], key_of(body)) for body in objects}
        for kind in MADE:
            for body in self._store.parts(kind.kind, service.key):
                if (kind.kind, key_of(body)) not in wanted and _is_made_for(body, service):
                    what = f"{kind.kind} {body['metadata']['name']}"
                    try:
                        await self._delete(service.key, kind.kind, body, what, done)
                    except ApiError as error:
                        done.refused.append(Refused(what, error))

    async def _delete(self, service: Key, kind: str, body: Any, what: str, done: Applied) -> None:  # noqa: ANN401
        if "deletionTimestamp" in body["metadata"]:
            return
        namespace, name = key_of(body)
        await self._api.delete(BY_NAME[kind], namespace, name, body["metadata"].get("uid"))
        self._applied[service].pop((kind, (namespace, name)), None)
        done.num_writes += 1
        done.changes.append(Change(what, "not wanted any more"))


def _why(mark: Mark | None, last: _Last | None, made: _Last) -> str:
    """Why an object was written; empty where it is as it was before."""
    is_same_plan = last is not None and last.content == made.content
    if mark is None:
        return "missing" if is_same_plan else "new"
    if made.mark == mark:
        return ""
    return "changed by others" if is_same_plan else "planned otherwise"


def _foreign(what: str, owner: str) -> ForeignObjectError:
    words = f"there is one already, of {owner}"
    return ForeignObjectError(f"{what}: {words}", words=words)


def _is_made_for(body: Any, service: InferenceService) -> bool:  # noqa: ANN401
    """Whether this service is the object's controller: what others made with our label stays."""
    owners = body["metadata"].get("ownerReferences", [])
    return any(one.get("uid") == service.uid and one.get("controller") for one in owners)


def _hash(body: Body) -> str:
    return hashlib.sha256(msgspec.json.encode(body, order="deterministic")).hexdigest()
