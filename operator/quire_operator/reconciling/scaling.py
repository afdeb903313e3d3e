"""The loop of scaling: ask gateways, decide all services, drain what goes, and wake who applies.

Nothing here is lost with the process: what was ordered is in the Deployments, what was decided last
in the status. Until as much has been seen as it takes, replicas stay as they are.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from quire_operator.cluster.kinds import NODES, PODS, SERVICES
from quire_operator.cluster.store import Key, Store
from quire_operator.logs import of
from quire_operator.planner.network_paths import GATEWAY_MANAGEMENT_PORT
from quire_operator.planner.observed import NO_SECRETS, Observed, node_from
from quire_operator.planner.settings import GatewayPlace
from quire_operator.reconciling.observing import gateway_addresses, observe
from quire_operator.reconciling.queue import WorkQueue
from quire_operator.reconciling.scaling_fleet import Gateways
from quire_operator.reconciling.scaling_inputs import gpu_stock, service_inputs
from quire_operator.reconciling.scaling_metrics import ScalingMetrics
from quire_operator.reconciling.scaling_records import ScalingRecords
from quire_operator.reconciling.scaling_victims import Victims
from quire_operator.resource.reading import InvalidResourceError, read
from quire_operator.scaling.decide import decide
from quire_operator.scaling.decision import ScalingMemory, ServiceDecision
from quire_operator.scaling.inputs import ScalingInputs, ServiceInputs

_log = logging.getLogger(__name__)

_APPLY_SECONDS = 15.0
"""So long an order may take until it is seen in Deployments."""


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
        self._memory = ScalingMemory()
        self._records = ScalingRecords()
        self._changed_at: dict[Key, float] = {}

    async def close(self) -> None:
        """Close all connections."""
        await self._gateways.close()
        await self._victims.close()

    def add_to(self, observed: Observed) -> Observed:
        """Let a plan know what was decided."""
        return self._records.add_to(observed)

    def forget(self, key: Key) -> None:
        """A service is gone."""
        self._records.forget(key)
        self._changed_at.pop(key, None)
        self._metrics.forget(key)

    async def run(self) -> None:
        """Decide for ever. No error leaves this loop."""
        while True:
            began = self._clock()
            try:
                await self._round()
            except Exception:  # noqa: BLE001 - a bug must not take the operator's other work
                _log.exception("scaling failed: replicas stay as they are")
            await asyncio.sleep(max(self._seconds - (self._clock() - began), 0.1))

    async def _round(self) -> None:
        urls = self._urls or tuple(
            f"http://{_bracketed(one)}:{GATEWAY_MANAGEMENT_PORT}"
            for one in gateway_addresses(self._store, self._gateway)
        )
        await self._gateways.ask(urls)
        seen = self._observe()
        nodes = map(node_from, self._store.all(NODES.kind)) if self._may_see_nodes else ()
        clock = self._clock()
        reports = list(self._gateways.reports.values())
        inputs = ScalingInputs(
            now=self._now().timestamp(),
            services=tuple(
                self._as_ordered(service_inputs(one, reports, len(urls), clock), one, clock)
                for one in seen
            ),
            stock=gpu_stock(nodes),
            stale_seconds=max(20.0, 3 * self._seconds),
        )
        began = self._clock()
        decision, self._memory = await asyncio.to_thread(decide, inputs, self._memory)
        self._metrics.note_round(self._clock() - began, len(urls), len(reports))
        for observed, one in zip(seen, decision.services, strict=True):
            await self._take(observed, one)
        self._victims.keep_only(set(self._store.keys(PODS.kind)))

    def _as_ordered(self, inputs: ServiceInputs, observed: Observed, clock: float) -> ServiceInputs:
        """With what was ordered a moment ago: its Deployments may not show it yet."""
        key = observed.service.key
        since = clock - self._changed_at.get(key, -math.inf)
        outcome = self._records.outcome(key)
        if outcome is None or since > _APPLY_SECONDS:
            return inputs
        return replace(inputs, ordered={**inputs.ordered, **outcome.replicas})

    def _observe(self) -> list[Observed]:
        """Services for which something was ordered; others are the planner's to begin."""
        found = []
        for key in self._store.keys(SERVICES.kind):
            body = self._store.get(SERVICES.kind, key)
            if body is None:
                continue
            try:
                service = read(body)
            except InvalidResourceError:
                continue
            observed = observe(
                self._store,
                service,
                engines={},
                secrets=NO_SECRETS,
                root_secret=b"",
                may_see_nodes=False,
                gateway=self._gateway,
            )
            if observed.deployments and not service.is_being_deleted:
                found.append(observed)
        return found

    async def _take(self, observed: Observed, decision: ServiceDecision) -> None:
        service = observed.service
        key, spec = service.key, service.spec
        if spec.suspend or spec.scaling.mode == "External":
            self.forget(key)
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
