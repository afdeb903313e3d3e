"""What no watch tells: what engines say of themselves, and what Secrets have in them.

Services are asked one after another over the whole interval, so that the load is even; a service
whose engines do not answer keeps none of the others waiting. One that has nothing new is not
planned anew.
"""

import asyncio
import logging

from quire_operator.cluster.kinds import PODS, SERVICES
from quire_operator.cluster.store import Key, Store
from quire_operator.errors import ApiError
from quire_operator.logs import of
from quire_operator.planner.observed import pod_from
from quire_operator.reconciling.engines import Engines
from quire_operator.reconciling.queue import WorkQueue
from quire_operator.reconciling.secrets import NamedSecrets
from quire_operator.resource.reading import InvalidResourceError, read

_log = logging.getLogger(__name__)


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
    ) -> None:
        self._store = store
        self._queue = queue
        self._engines = engines
        self._secrets = secrets
        self._poll_seconds = poll_seconds
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
        pods = tuple(map(pod_from, self._store.parts(PODS.kind, key)))
        is_new = await self._engines.ask(service, pods)
        try:
            is_new |= await self._secrets.refresh(service)
        except ApiError as error:
            _log.warning("%s/%s: %s", *key, error, extra=of(key))
        if is_new:
            self._queue.add(key)
