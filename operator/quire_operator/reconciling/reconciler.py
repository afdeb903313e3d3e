"""One look at one service: observe, plan, apply, say."""

import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from msgspec import structs

from quire_operator.cluster.api import ClusterApi
from quire_operator.cluster.kinds import SERVICES
from quire_operator.cluster.store import Key, Store
from quire_operator.errors import ApiError, ForeignObjectError, RetryableError
from quire_operator.logs import of
from quire_operator.planner.last_engine import told_of
from quire_operator.planner.observed import Observed, Refusal
from quire_operator.planner.plan import plan
from quire_operator.planner.settings import PlannerSettings
from quire_operator.reconciling.applying import Applied, Applier
from quire_operator.reconciling.claims import NameClaims
from quire_operator.reconciling.engines import Engines
from quire_operator.reconciling.event_writer import EventWriter
from quire_operator.reconciling.metrics import Metrics
from quire_operator.reconciling.observing import observe
from quire_operator.reconciling.queue import WorkQueue
from quire_operator.reconciling.scaling import Scaling
from quire_operator.reconciling.secrets import NamedSecrets
from quire_operator.reconciling.status_writer import StatusWriter
from quire_operator.resource.reading import InferenceService, InvalidResourceError, read

_log = logging.getLogger(__name__)

_TRIES_BEFORE_SAID = 3
"""Of what may pass by itself, such as a conflict: then it is said in the status."""


class Reconciler:
    """Works on the queue. All that it keeps could be lost: it begins anew from what is seen."""

    def __init__(
        self,
        *,
        api: ClusterApi,
        store: Store,
        queue: WorkQueue,
        engines: Engines,
        secrets: NamedSecrets,
        settings: PlannerSettings,
        metrics: Metrics,
        root_secret: Callable[[], bytes],
        clock: Callable[[], float],
        now: Callable[[], datetime],
        may_see_nodes: bool,
        scaling: Scaling | None = None,
    ) -> None:
        self._api = api
        self._store = store
        self._queue = queue
        self._engines = engines
        self._secrets = secrets
        self._settings = settings
        self._metrics = metrics
        self._root_secret = root_secret
        self._clock = clock
        self._now = now
        self._may_see_nodes = may_see_nodes
        self._scaling = scaling
        self._claims = NameClaims(store, queue.add)
        self._applier = Applier(api, store, clock)
        self._writer = StatusWriter(api, clock)
        self._events = EventWriter(api, clock)

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
                _log.warning("%s/%s: %s; again in %.1f s", *key, error, delay, extra=of(key))
            except Exception:  # noqa: BLE001 - a bug must not stop the others' work
                delay = self._queue.failed(key)
                self._metrics.note_failure(key)
                _log.exception("%s/%s: a look failed; again in %.1f s", *key, delay, extra=of(key))
                await self._say_failure(key)
            else:
                self._queue.done(key)
            self._metrics.note_look(self._clock() - began)

    async def _say_failure(self, key: Key) -> None:
        """After some tries, say in the status that they fail: else it would say what was."""
        body = self._store.get(SERVICES.kind, key)
        if body is None or self._queue.num_failures(key) < _TRIES_BEFORE_SAID:
            return
        with contextlib.suppress(ApiError, InvalidResourceError):
            await self._writer.write_failure(read(body), self._now())

    async def post_events(self) -> None:
        """Write the events of all looks, for ever."""
        await self._events.run()

    def doubt(self, key: Key) -> None:
        """Look the next time at what is not watched of a service, too."""
        self._applier.doubt(key)

    async def look_at(self, key: Key) -> None:
        """Make one service as it should be.

        Raises
        ------
        ApiError
            The API server did not take something.
        """
        body = self._store.get(SERVICES.kind, key)
        if body is None:
            if self._writer.forget(key):
                _log.info("%s/%s: deleted", *key, extra=of(key))
            self._events.forget(key)
            self._metrics.forget(key)
            self._applier.forget(key)
            self._secrets.forget(key)
            self._claims.forget(key)
            if self._scaling is not None:
                self._scaling.forget(key)
            return  # the cluster deletes what it owned
        try:
            service = read(body)
        except InvalidResourceError as error:
            _log.error("%s/%s cannot be read: %s", *key, error, extra=of(key))
            await self._writer.write_unreadable(body, error, self._now())
            return
        if service.is_being_deleted:
            self._claims.forget(key)
            return
        await self._make(service)

    async def _make(self, service: InferenceService) -> None:
        observed = await self._observe(service)
        now = self._now()
        wanted = plan(observed, self._settings, now)
        applied = await self._applier.apply(service, wanted.objects)
        _log_changes(service, applied)
        if refusals := self._refusals(service.key, applied):
            # said as it is now; the objects would be the same
            wanted = plan(replace(observed, refusals=refusals), self._settings, now)
        wait = await self._writer.write(service, wanted.status, now)
        self._events.post(service, wanted.events, now)
        self._metrics.note_service(service.key, wanted.status, applied.num_writes)
        if wait is not None:
            self._queue.add_later(service.key, wait)
        if wanted.look_again_at is not None:
            self._queue.add_later(service.key, (wanted.look_again_at - now).total_seconds() + 0.1)
        if applied.refused:
            raise applied.refused[0].error

    def _refusals(self, key: Key, applied: Applied) -> tuple[Refusal, ...]:
        """What is to be said: what passes by itself only when it has not after some tries."""
        is_lasting = self._queue.num_failures(key) + 1 >= _TRIES_BEFORE_SAID
        return tuple(
            Refusal(what=what, words=error.words, is_foreign=isinstance(error, ForeignObjectError))
            for what, error in applied.refused
            if is_lasting or not isinstance(error, RetryableError)
        )

    async def _observe(self, service: InferenceService) -> Observed:
        known = structs.replace(service, status=self._writer.last(service))
        observed = observe(
            self._store,
            known,
            engines={},
            secrets=await self._secrets.look(service),
            root_secret=self._root_secret(),
            may_see_nodes=self._may_see_nodes,
            gateway=self._settings.gateway,
            standing=self._claims.stand(known, self._now()),
        )
        ready = {pod.name for pod in observed.pods if pod.is_ready}
        heard = self._engines.heard(service, observed.pods)
        if self._scaling is not None:
            observed = self._scaling.add_to(observed)
        engines = {name: one for name, one in heard.items() if name in ready}
        last = self._engines.last(service)
        return replace(
            observed,
            engines=engines,
            last_engine=told_of(observed.last_engine, last, has_engines=bool(engines)),
            unheard=self._engines.unheard(service, observed.pods),
            loading={
                name: one.loading
                for name, one in heard.items()
                if name not in ready and one.loading is not None
            },
        )


def _log_changes(service: InferenceService, applied: Applied) -> None:
    """One line for each plan that changed something; none where everything was as planned."""
    if not applied.changes:
        return
    changes = ", ".join(f"{what} ({why})" for what, why in applied.changes)
    fields = {
        "generation": service.generation,
        "changes": [one._asdict() for one in applied.changes],
    }
    _log.info("%s/%s: %s", *service.key, changes, extra=of(service.key, **fields))
