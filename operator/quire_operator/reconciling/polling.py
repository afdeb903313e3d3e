"""What no watch tells: what engines say of themselves, and what Secrets have in them.

Services are asked one after another over the whole interval, so that the load is even; a service
whose engines do not answer keeps none of the others waiting. One that has nothing new is not
planned anew.
"""

import asyncio
import logging
import math
from collections.abc import Callable

from quire_operator.cluster.kinds import PODS, SERVICES
from quire_operator.cluster.store import Key, Store
from quire_operator.errors import ApiError
from quire_operator.logs import of
from quire_operator.reconciling.engines import Engines
from quire_operator.reconciling.observing import engine_pods
from quire_operator.reconciling.queue import WorkQueue
from quire_operator.reconciling.secrets import NamedSecrets
from quire_operator.resource.reading import InvalidResourceError, read

_log = logging.getLogger(__name__)


class Doubt:
    """Engines that are not well may lack their tokens: somebody may have touched that Secret.

    Parameters
    ----------
    raise_it
        Have a service's Secret looked at, the next time that the service is.
    """

    def __init__(
        self,
        raise_it: Callable[[Key], None],
        *,
        period_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._raise = raise_it
        self._period_seconds = period_seconds
        self._clock = clock
        self._raised: dict[Key, float] = {}

    def about(self, service: Key) -> bool:
        """Raise it, once in a while; whether it was raised now."""
        now = self._clock()
        if now - self._raised.get(service, -math.inf) < self._period_seconds:
            return False
        self._raised[service] = now
        self._raise(service)
        return True

    def keep_only(self, services: set[Key]) -> None:
        """Forget services that are gone."""
        for key in self._raised.keys() - services:
            del self._raised[key]


class Polling:
    """Asks, and enqueues the services that have something new."""

    def __init__(
        self,
        *,
        store: Store,
        queue: WorkQueue,
        engines: Engines,
        secrets: NamedSecrets,
        poll_seconds: float,
        doubt: Doubt,
    ) -> None:
        self._store = store
        self._queue = queue
        self._engines = engines
        self._secrets = secrets
        self._poll_seconds = poll_seconds
        self._doubt = doubt
        self._asked: dict[Key, asyncio.Task[None]] = {}
        """Services that are being asked."""

    async def run(self) -> None:
        """Ask for ever."""
        try:
            while True:
                await self._ask_all()
        finally:
            for task in self._asked.values():
                task.cancel()

    async def _ask_all(self) -> None:
        keys = self._store.keys(SERVICES.kind)
        pause = self._poll_seconds / max(len(keys), 1)
        for key in keys:
            if key not in self._asked:
                task = asyncio.create_task(self._ask(key))
                self._asked[key] = task
                task.add_done_callback(lambda _, key=key: self._asked.pop(key, None))  # type: ignore[misc]
            await asyncio.sleep(pause)
        self._doubt.keep_only(set(keys))
        self._engines.keep_only(set(keys), set(self._store.keys(PODS.kind)))
        if not keys:
            await asyncio.sleep(self._poll_seconds)

    async def _ask(self, key: Key) -> None:
        body = self._store.get(SERVICES.kind, key)
        if body is None:
            return
        try:
            service = read(body)
        except InvalidResourceError:
            return
        pods = engine_pods(self._store, key)
        is_new = await self._engines.ask(service, pods)
        try:
            is_new |= await self._secrets.refresh(service)
        except ApiError as error:
            _log.warning("%s/%s: %s", *key, error, extra=of(key))
        is_well = bool(pods) and all(pod.is_ready for pod in pods)
        if not is_well or self._engines.unheard(service, pods):
            is_new |= self._doubt.about(key)
        if is_new:
            self._queue.add(key)
