"""Events, to the API server: when there is time for it, and not without end.

Whoever edits a service again and again makes events each time: of each service there are so many at
once, and then one now and then, as others of Kubernetes' parts keep it.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from quire_operator.cluster.api import Body, ClusterApi
from quire_operator.cluster.store import Key
from quire_operator.logs import of
from quire_operator.planner.events import RECOMMENDED, Event
from quire_operator.planner.names import MANAGER
from quire_operator.resource.crd import API_VERSION, KIND
from quire_operator.resource.reading import InferenceService

_log = logging.getLogger(__name__)

_AT_ONCE = 25
"""Events of one service."""
_REFILL_SECONDS = 60.0
"""Until it may have one more."""
_MOST_UNPOSTED = 10_000
_ADVICE_SECONDS = 3600.0
"""So long the same advice is not told again, whatever else was advised meanwhile."""
_MOST_ADVICE = 100
"""Of one service, that is known to be told."""


@dataclass
class _Bucket:
    left: float
    at: float
    """Monotonic."""


class EventWriter:
    """Writes events one after another."""

    def __init__(self, api: ClusterApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._buckets: dict[Key, _Bucket] = {}
        self._advice: dict[Key, dict[str, float]] = {}
        """When what was advised, by its words."""
        self._unposted: asyncio.Queue[Body] = asyncio.Queue(_MOST_UNPOSTED)

    @property
    def num_unposted(self) -> int:
        """Events that are still to be written."""
        return self._unposted.qsize()

    def forget(self, service: Key) -> None:
        """A service is gone; one that comes back soon has as many left as it had."""
        self._advice.pop(service, None)
        bucket = self._buckets.get(service)
        if bucket is not None and self._refill(bucket) >= _AT_ONCE:
            del self._buckets[service]

    def post(self, service: InferenceService, events: Sequence[Event], now: datetime) -> None:
        """Log events, and write them when there is time for it: the next service comes first."""
        for event in events:
            if event.reason == RECOMMENDED and not self._is_new_advice(service.key, event.message):
                continue
            _log.info(
                "%s/%s: %s: %s",
                *service.key,
                event.reason,
                event.message,
                extra=of(service.key, reason=event.reason, event=event.kind),
            )
            if self._takes(service.key) and not self._unposted.full():
                self._unposted.put_nowait(_body(service, event, now))

    async def run(self) -> None:
        """Write for ever."""
        while True:
            body = await self._unposted.get()
            try:
                await self._api.post_event(body)
            except Exception:  # noqa: BLE001 - a bug must not stop the operator
                _log.exception("an event could not be written")

    def _is_new_advice(self, service: Key, words: str) -> bool:
        known, now = self._advice.get(service, {}), self._clock()
        lately = {one: at for one, at in known.items() if now - at < _ADVICE_SECONDS}
        is_new = words not in lately
        if is_new:
            lately = dict(list(lately.items())[1 - _MOST_ADVICE :]) | {words: now}
        self._advice[service] = lately
        return is_new

    def _takes(self, service: Key) -> bool:
        bucket = self._buckets.setdefault(service, _Bucket(_AT_ONCE, self._clock()))
        if self._refill(bucket) < 1:
            return False
        bucket.left -= 1
        return True

    def _refill(self, bucket: _Bucket) -> float:
        now = self._clock()
        bucket.left = min(bucket.left + (now - bucket.at) / _REFILL_SECONDS, _AT_ONCE)
        bucket.at = now
        return bucket.left


def _body(service: InferenceService, event: Event, now: datetime) -> Body:
    moment = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "namespace": service.namespace,
            "name": f"{service.name}.{uuid.uuid4().hex[:16]}",
        },
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "namespace": service.namespace,
            "name": service.name,
            "uid": service.uid,
        },
        "type": event.kind,
        "reason": event.reason,
        "message": event.message[:1000],
        "source": {"component": MANAGER},
        "reportingComponent": MANAGER,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
