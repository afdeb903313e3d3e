"""The loop of scaling: ask gateways, decide all services, drain what goes, and wake who applies.

    every few seconds    gateways are asked, and all services are decided
    between two rounds   those whose specs have changed, by what was heard last

Nothing here is lost with the process: what was ordered is in the Deployments, what was decided last
in the status. Until as much has been seen as it takes, replicas stay as they are.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from quire_operator.cluster.kinds import NODES, PODS, SERVICES
from quire_operator.cluster.store import Key, Store
from quire_operator.logs import of
from quire_operator.planner.network_paths import GATEWAY_MANAGEMENT_PORT
from quire_operator.planner.observed import Observed, node_from
from quire_operator.planner.settings import GatewayPlace
from quire_operator.reconciling.gateways import gateway_addresses
from quire_operator.reconciling.observing import observe_replicas
from quire_operator.reconciling.queue import WorkQueue
from quire_operator.reconciling.scaling_fleet import Gateways
from quire_operator.reconciling.scaling_inputs import gpu_stock, service_inputs
from quire_operator.reconciling.scaling_metrics import ScalingMetrics
from quire_operator.reconciling.scaling_records import ScalingRecords
from quire_operator.reconciling.scaling_victims import Victims
from quire_operator.resource.reading import InferenceService, InvalidResourceError, read
from quire_operator.scaling.decide import decide
from quire_operator.scaling.decision import Decision, ScalingMemory, ServiceDecision
from quire_operator.scaling.inputs import ScalingInputs, ServiceInputs

_log = logging.getLogger(__name__)

_APPLY_SECONDS = 15.0
"""So long an order may take until it is seen in Deployments."""
_LEAST_PAUSE_SECONDS = 0.1
"""Between two rounds, however long they take."""
_AT_A_TIME = 25
"""Services that are looked at before others have the event loop."""


class Scaling:
    """Decides, and keeps what was decided."""

    def __init__(
        self,
        *,
        store: Store,
        queue: WorkQueue,
        victims: Victims,
        metrics: ScalingMetrics,
        gateway: GatewayPlace,
        gateway_urls: tuple[str, ...],
        seconds: float,
        may_see_nodes: bool,
        clock: Callable[[], float],
        now: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._queue = queue
        self._victims = victims
        self._metrics = metrics
        self._gateway = gateway
        self._urls = gateway_urls
        self._seconds = seconds
        self._may_see_nodes = may_see_nodes
        self._clock = clock
        self._now = now
        self._gateways = Gateways(clock)
        self._num_gateways = 0
        self._memory = ScalingMemory()
        self._records = ScalingRecords()
        self._changed_at: dict[Key, float] = {}
        self._inputs: dict[Key, ServiceInputs] = {}
        """What each service was decided from last, with what was ordered then."""
        self._generations: dict[Key, int] = {}
        """Of the specs that they were decided for."""
        self._failures: dict[Key, str] = {}
        """Why services could not be decided the last time."""
        self._others: set[Key] = set()
        """Services whose specs are others now."""
        self._is_any_other = asyncio.Event()

    async def close(self) -> None:
        """Close all connections."""
        await self._gateways.close()
        await self._victims.close()

    def add_to(self, observed: Observed) -> Observed:
        """Let a plan know what was decided; a spec that is another one since is decided at once."""
        key = observed.service.key
        if self._generations.get(key, observed.service.generation) != observed.service.generation:
            self._others.add(key)
            self._is_any_other.set()
        return self._records.add_to(observed)

    def forget(self, key: Key) -> None:
        """A service is gone."""
        for known in (self._inputs, self._generations, self._failures):
            known.pop(key, None)
        self._let_be(key)

    def _let_be(self, key: Key) -> None:
        """Its replicas are not for scaling to decide."""
        self._records.forget(key)
        self._changed_at.pop(key, None)
        self._metrics.forget(key)

    async def run(self) -> None:
        """Decide for ever. No error leaves this loop."""
        due = self._clock()
        while True:
            began = self._clock()
            try:
                if began >= due:
                    due = began + self._seconds
                    await self._round()
                else:
                    await self._decide_others()
            except Exception:  # noqa: BLE001 - a bug must not take the operator's other work
                _log.exception("scaling failed: replicas stay as they are")
            if due - self._clock() < _LEAST_PAUSE_SECONDS:
                due = self._clock() + _LEAST_PAUSE_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(due - self._clock()):
                    await self._is_any_other.wait()

    async def _round(self) -> None:
        """Everybody's turn."""
        urls = self._urls or tuple(
            f"http://{_bracketed(one)}:{GATEWAY_MANAGEMENT_PORT}"
            for one in gateway_addresses(self._store, self._gateway)
        )
        await self._gateways.ask(urls)
        self._clear_others()
        seen = await self._observe(self._store.keys(SERVICES.kind))
        self._num_gateways = len(urls)
        self._inputs = self._see(seen)
        began = self._clock()
        decision = await self._decide(list(self._inputs.values()))
        self._metrics.note_round(self._clock() - began, len(urls), len(self._gateways.reports))
        await self._take_all(seen, decision)
        self._victims.keep_only(set(self._store.keys(PODS.kind)))

    async def _decide_others(self) -> None:
        """Between two rounds: those whose specs have changed, by what was heard last.

        The others count as they were, so that GPUs are shared as in a round.
        """
        keys = self._clear_others()
        seen = await self._observe(key for key in keys if key in self._inputs)
        if not seen:
            return
        found = self._see(seen)
        self._inputs |= found
        seen = [one for one in seen if one.service.key in found]
        there = self._store.keys(SERVICES.kind)
        services = [self._inputs[key] for key in there if key in self._inputs]
        changed = [one.key for one in found.values()]
        await self._take_all(seen, await self._decide(services, changed))

    def _clear_others(self) -> set[Key]:
        keys, self._others = self._others, set()
        self._is_any_other.clear()
        return keys

    def _see(self, seen: Iterable[Observed]) -> dict[Key, ServiceInputs]:
        """Inputs of those that can be seen; one that cannot is no reason to decide no other."""
        clock = self._clock()
        reports = list(self._gateways.reports.values())
        found = {}
        for one in seen:
            key = one.service.key
            try:
                inputs = service_inputs(one, reports, self._num_gateways, clock)
            except Exception as error:  # noqa: BLE001 - a bug must not stop all the others
                self._note_failure(key, error)
                continue
            found[key] = self._as_ordered(inputs, one, clock)
            self._failures.pop(key, None)
        return found

    def _note_failure(self, key: Key, error: Exception) -> None:
        """Say that a service cannot be decided, if it did not fail so the last time, too."""
        self._metrics.note_failure(key)
        if self._failures.get(key) != repr(error):
            self._failures[key] = repr(error)
            words = "%s/%s cannot be decided: its replicas stay as they are"
            _log.error(words, *key, exc_info=error, extra=of(key))

    async def _decide(
        self, services: Sequence[ServiceInputs], changed: Sequence[str] | None = None
    ) -> Decision:
        nodes = map(node_from, self._store.all(NODES.kind)) if self._may_see_nodes else ()
        inputs = ScalingInputs(
            now=self._now().timestamp(),
            services=tuple(services),
            stock=gpu_stock(nodes),
            stale_seconds=max(20.0, 3 * self._seconds),
        )
        decision, self._memory = await asyncio.to_thread(decide, inputs, self._memory, changed)
        return decision

    def _as_ordered(self, inputs: ServiceInputs, observed: Observed, clock: float) -> ServiceInputs:
        """With what was ordered a moment ago: its Deployments may not show it yet."""
        key = observed.service.key
        since = clock - self._changed_at.get(key, -math.inf)
        outcome = self._records.ordered(key)
        if outcome is None or since > _APPLY_SECONDS:
            return inputs
        staying = {**outcome.replicas, **outcome.leaving}
        leaving = tuple(
            replace(one, replicas=several)
            for one in inputs.leaving
            if (several := min(one.replicas, staying.get(one.name, 0)))
        )
        return replace(inputs, ordered={**inputs.ordered, **outcome.replicas}, leaving=leaving)

    async def _observe(self, keys: Iterable[Key]) -> list[Observed]:
        """Services for which something was ordered; others are the planner's to begin."""
        found = []
        for number, key in enumerate(keys):
            if number % _AT_A_TIME == _AT_A_TIME - 1:
                await asyncio.sleep(0)
            service = self._read(key)
            if service is None or service.is_being_deleted:
                continue
            try:
                observed = observe_replicas(self._store, service)
            except Exception as error:  # noqa: BLE001 - a bug must not stop all the others
                self._note_failure(key, error)
                continue
            if observed.deployments:
                found.append(observed)
        return found

    def _read(self, key: Key) -> InferenceService | None:
        body = self._store.get(SERVICES.kind, key)
        if body is None:
            return None
        try:
            return read(body)
        except InvalidResourceError:
            return None

    async def _take_all(self, seen: Sequence[Observed], decision: Decision) -> None:
        decided = {one.key: one for one in decision.services}
        for observed in seen:
            key = observed.service.key
            inputs = self._inputs.get(key)
            if inputs is None:
                continue  # deleted meanwhile
            one = decided[inputs.key]
            self._generations[key] = observed.service.generation
            leaving = tuple(
                replace(other, replicas=several)
                for other in inputs.leaving
                if (several := one.leaving.get(other.name, 0))
            )
            self._inputs[key] = replace(inputs, ordered=one.replicas, leaving=leaving)
            await self._take(observed, one)

    async def _take(self, observed: Observed, decision: ServiceDecision) -> None:
        service = observed.service
        key, spec = service.key, service.spec
        if spec.suspend or spec.scaling.mode == "External":
            self._let_be(key)
            return
        self._metrics.note(key, decision)
        pods = {pod.name: pod for pod in observed.pods}
        if decision.is_change:
            victims = [pods[name] for name in decision.victims if name in pods]
            await self._victims.drain(key, victims)
            _log.info("%s/%s: %s", *key, decision.reason, extra=of(key, inputs=decision.inputs))
        draining = [pod for pod in observed.pods if pod.name not in decision.victims]
        await self._victims.let_in(key, draining)
        if decision.is_change:
            self._changed_at[key] = self._clock()
        if self._records.take(observed, decision, self._now()).is_news:
            self._queue.add(key)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
