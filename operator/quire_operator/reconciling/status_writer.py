"""The status, to the API server: on a transition, or at most once a minute for figures."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from msgspec import structs, to_builtins

from quire_operator.cluster.api import Body, ClusterApi
from quire_operator.cluster.store import Key, key_of
from quire_operator.errors import ApiError
from quire_operator.planner.names import STATUS_MANAGER
from quire_operator.planner.unread import of_failure, of_refused, of_unreadable
from quire_operator.resource.crd import API_VERSION, KIND
from quire_operator.resource.reading import InferenceService, InvalidResourceError
from quire_operator.resource.status import InferenceServiceStatus

_FIGURE_SECONDS = 60.0
_INVALID = 422


class _Written(NamedTuple):
    """What was written last of one service."""

    uid: str
    """Of the resource: one that is made anew under the same name has no status yet."""
    at: float
    status: InferenceServiceStatus


class StatusWriter:
    """Writes what has changed."""

    def __init__(self, api: ClusterApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._written: dict[Key, _Written] = {}

    def forget(self, service: Key) -> bool:
        """A service is gone; whether anything was ever said of it."""
        return self._written.pop(service, None) is not None

    def last(self, service: InferenceService) -> InferenceServiceStatus:
        """The status as it was written last: a watch may not have shown it yet."""
        written = self._written.get(service.key)
        if written is None or written.uid != service.uid:  # of one that had its name before
            return service.status
        return written.status

    async def write(
        self, service: InferenceService, status: InferenceServiceStatus, now: datetime
    ) -> float | None:
        """Write a status if it says anything new.

        One that the API server does not take is written without figures, so that something is
        said. Returns after how many seconds it should be tried again, where figures have to wait.
        """
        before = self.last(service)
        if status == before and service.status == before:
            return None
        if status != before and without_figures(status) == without_figures(before):
            left = self._written_at(service) + _FIGURE_SECONDS - self._clock()
            if left > 0:
                return left
        try:
            await self._apply(service.key, status)
        except ApiError as error:
            if error.status != _INVALID:
                raise
            await self._apply(service.key, of_refused(status, error.words, now))
            raise
        self._written[service.key] = _Written(service.uid, self._clock(), status)
        return None

    async def write_unreadable(
        self, body: Mapping[str, Any], error: InvalidResourceError, now: datetime
    ) -> None:
        """Say of a service that its spec cannot be read."""
        uid = body["metadata"].get("uid", "")
        await self._write_bare(key_of(body), uid, of_unreadable(body, error, now))

    async def write_failure(self, service: InferenceService, now: datetime) -> None:
        """Say of a service that no look goes well at it."""
        known = structs.replace(service, status=self.last(service))
        await self._write_bare(service.key, service.uid, of_failure(known, now))

    async def _write_bare(self, key: Key, uid: str, status: InferenceServiceStatus) -> None:
        written = self._written.get(key)
        if written is None or (written.uid, written.status) != (uid, status):
            await self._apply(key, status)
            self._written[key] = _Written(uid, self._clock(), status)

    async def _apply(self, service: Key, status: InferenceServiceStatus) -> None:
        await self._api.apply(_body(service, status), STATUS_MANAGER, subresource="status")

    def _written_at(self, service: InferenceService) -> float:
        written = self._written.get(service.key)
        is_known = written is not None and written.uid == service.uid
        return written.at if written is not None and is_known else float("-inf")


def without_figures(status: InferenceServiceStatus) -> InferenceServiceStatus:
    """A status without what is written once a minute at most."""
    bare = tuple(
        structs.replace(
            one,
            blocks_held_percent=None,
            blocks_reserved_percent=None,
            loading_percent=None,
            tokens_per_second=None,
        )
        for one in status.accelerators
    )
    return structs.replace(
        status,
        accelerators=bare,
        blocks_held_percent=None,
        loading_percent=None,
        tokens_per_second=None,
    )


def _body(service: Key, status: InferenceServiceStatus) -> Body:
    namespace, name = service
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"namespace": namespace, "name": name},
        "status": _without_nulls(to_builtins(status)),
    }


def _without_nulls(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list | tuple) else value
