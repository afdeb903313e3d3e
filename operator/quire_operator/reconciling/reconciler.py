"""One look at one service: observe, plan, apply, say."""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from msgspec import structs

from quire_operator.cluster.api import ClusterApi
from quire_operator.cluster.kinds import SECRETS, SERVICES
from quire_operator.cluster.store import Key, Store
from quire_operator.errors import ApiError
from quire_operator.planner.observed import Observed
from quire_operator.planner.plan import plan
from quire_operator.planner.settings import PlannerSettings
from quire_operator.reconciling.applying import Applier
from quire_operator.reconciling.engines import Engines
from quire_operator.reconciling.metrics import Metrics
from quire_operator.reconciling.observing import observe
from quire_operator.reconciling.queue import WorkQueue
from quire_operator.reconciling.status_writer import StatusWriter
from quire_operator.resource.reading import InferenceService, InvalidResourceError, read

_log = logging.getLogger(__name__)

_MISSING_SECRET_SECONDS = 15.0
"""Secrets are not watched: that would need the right to read all of them."""


class Reconciler:
    """Works on the queue. All that it keeps could be lost: it begins anew from what is seen."""

    def __init__(
        self,
        *,
        api: ClusterApi,
        store: Store,
        queue: WorkQueue,
        engines: Engines,
        settings: PlannerSettings,
        metrics: Metrics,
        root_secret: Callable[[], bytes],
        clock: Callable[[], float],
        now: Callable[[], datetime],
        may_see_nodes: bool,
    ) -> None:
        self._api = api
        self._store = store
        self._queue = queue
        self._engines = engines
        self._settings = settings
        self._metrics = metrics
        self._root_secret = root_secret
        self._clock = clock
        self._now = now
        self._may_see_nodes = may_see_nodes
        self._applier = Applier(api, store)
        self._writer = StatusWriter(api, clock)

    async def work(self) -> None:
        """Take keys from the queue for ever. No error leaves this loop."""
        while True:
            key = await self._queue.take()
            began = self._clock()
            try:
                await self.look_at(key)
            except ApiError as error:
                delay = self._queue.failed(key)
                self._metrics.note_failure(key)
                _log.warning("%s/%s: %s; again in %.1f s", *key, error, delay)
            except Exception:  # noqa: BLE001 - a bug must not stop the others' work
                delay = self._queue.failed(key)
                self._metrics.note_failure(key)
                _log.exception("%s/%s: a look failed; again in %.1f s", *key, delay)
            else:
                self._queue.done(key)
            self._metrics.note_look(self._clock() - began)

    def forget_applied(self) -> None:
        """Apply everything again the next time: whatever happened unseen is mended."""
        for key in self._store.keys(SERVICES.kind):
            self._applier.forget(key)

    async def look_at(self, key: Key) -> None:
        """Make one service as it should be.

        Raises
        ------
        ApiError
            The API server did not take something.
        """
        body = self._store.get(SERVICES.kind, key)
        if body is None:
            self._writer.forget(key)
            self._metrics.forget(key)
            return  # the cluster deletes what it owned
        try:
            service = read(body)
        except InvalidResourceError as error:
            _log.error("%s/%s cannot be read: %s", *key, error)
            return
        if service.is_being_deleted:
            return
        await self._make(service)

    async def _make(self, service: InferenceService) -> None:
        observed = await self._observe(service)
        now = self._now()
        wanted = plan(observed, self._settings, now)
        num_written = await self._applier.apply(service, wanted.objects)
        wait = await self._writer.write(service, wanted.status)
        await self._writer.post(service, wanted.events, now)
        self._metrics.note_service(service.key, wanted.status, num_written)
        if wait is not None:
            self._queue.add_later(service.key, wait)
        if wanted.look_again_at is not None:
            self._queue.add_later(service.key, (wanted.look_again_at - now).total_seconds() + 0.1)
        if observed.missing_secrets:
            self._queue.add_later(service.key, _MISSING_SECRET_SECONDS)

    async def _observe(self, service: InferenceService) -> Observed:
        known = structs.replace(service, status=self._writer.last(service))
        observed = observe(
            self._store,
            known,
            engines={},
            missing_secrets=await self._missing_secrets(service),
            root_secret=self._root_secret(),
            may_see_nodes=self._may_see_nodes,
        )
        return replace(observed, engines=self._engines.heard(service, observed.pods))

    async def _missing_secrets(self, service: InferenceService) -> tuple[str, ...]:
        spec = service.spec
        named = {
            reference.name
            for reference in (spec.model.token_secret_ref, spec.access.api_keys_secret_ref)
            if reference is not None
        }
        missing = [
            name
            for name in sorted(named)
            if await self._api.get(SECRETS, service.namespace, name) is None
        ]
        return tuple(missing)
