"""Replicas that follow the traffic: the operator's own decisions, on what this run's gateway says.

    gateway's report, engines ──► inputs ──► decide ──► outcome, victims ──► the next look's plans

What was decided is kept here; a gateway that does not answer, or a file that is read again, changes
no replica count by itself.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType

from quire_local.up.inventory import Inventory
from quire_local.up.resource_file import Key
from quire_operator.planner.observed import Observed
from quire_operator.reconciling.scaling_inputs import service_inputs
from quire_operator.reconciling.scaling_records import ScalingRecords
from quire_operator.reconciling.scaling_reports import Report
from quire_operator.resource.status import ScalingDecision
from quire_operator.scaling.decision import ScalingMemory, ServiceDecision
from quire_operator.scaling.inputs import ScalingInputs, ServiceInputs

PERIOD_SECONDS = 5.0
_KEPT_DECISIONS = 20


class LocalScaling:
    """Decides for all services of a run, and remembers what it decided.

    Parameters
    ----------
    inventory
        The GPUs that services share: there will never be others.
    """

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._memory = ScalingMemory()
        self._records = ScalingRecords()
        self._decisions: dict[Key, deque[ScalingDecision]] = {}
        self.victims: frozenset[str] = frozenset()
        """Engines that go when there are to be fewer."""

    def add_to(self, observed: Observed) -> Observed:
        """Let a plan know what was decided."""
        return self._records.add_to(observed)

    def decisions(self, service: Key) -> tuple[ScalingDecision, ...]:
        """The last changes and advice, the newest first."""
        return tuple(self._decisions.get(service, ()))

    def forget(self, service: Key) -> None:
        """It is gone, or its replicas are somebody else's to decide."""
        self._records.forget(service)

    async def decide(
        self,
        services: Sequence[Observed],
        report: Report | None,
        has_room: Mapping[Key, Collection[str]] = MappingProxyType({}),
    ) -> bool:
        """Decide now; whether anything is otherwise than before.

        Parameters
        ----------
        services
            Those whose replicas were asked for once.
        report
            What the gateway said last, however long ago.
        has_room
            By service, accelerators of which a GPU is free.
        """
        from quire_operator.scaling.decide import decide  # HiGHS: engines start meanwhile

        now = time.monotonic()
        reports = [report] if report is not None else []
        seen = [self._within_inventory(service_inputs(one, reports, 1, now)) for one in services]
        inputs = ScalingInputs(
            now=time.time(), services=tuple(seen), stock=self._inventory.stock(_count_needed(seen))
        )
        memory = _forget_shortages(self._memory, has_room)
        decision, self._memory = await asyncio.to_thread(decide, inputs, memory)
        self.victims = frozenset(name for one in decision.services for name in one.victims)
        pairs = zip(services, decision.services, strict=True)
        news = [self._take(observed, one) for observed, one in pairs]
        return any(news)

    def _within_inventory(self, service: ServiceInputs) -> ServiceInputs:
        """Nothing brings GPUs here: others stand in at once for a replica that finds none.

        Unless some are about to be free, of replicas that end.
        """
        ending = {one.accelerator for one in service.replicas if one.is_ending}
        accelerators = tuple(
            replace(
                one,
                products=self._inventory.names_of(one.products),
                provision_timeout_seconds=one.provision_timeout_seconds
                if one.name in ending
                else 0.0,
            )
            for one in service.accelerators
        )
        leaving = tuple(
            replace(one, products=self._inventory.names_of(one.products)) for one in service.leaving
        )
        return replace(service, accelerators=accelerators, leaving=leaving)

    def _take(self, observed: Observed, decision: ServiceDecision) -> bool:
        key, spec = observed.service.key, observed.service.spec
        if spec.suspend or spec.scaling.mode == "External":
            self.forget(key)
            return False
        taken = self._records.take(observed, decision, datetime.now(UTC))
        if taken.record is not None:
            kept = self._decisions.setdefault(key, deque(maxlen=_KEPT_DECISIONS))
            kept.appendleft(taken.record)
        return taken.is_news


def _count_needed(services: Iterable[ServiceInputs]) -> Counter[str]:
    """GPUs by name that the services' minimums need; of several that will do, as many of each."""
    from quire_operator.scaling.rooms import least_of  # HiGHS, as above

    needed: Counter[str] = Counter()
    for service in services:
        least = least_of(service)
        for one in service.accelerators:
            needed.update(dict.fromkeys(one.products, least[one.name] * one.gpus_per_replica))
    return needed


def _forget_shortages(
    memory: ScalingMemory, has_room: Mapping[Key, Collection[str]]
) -> ScalingMemory:
    """What was short and has a free GPU now, is not."""
    services = {
        name: replace(
            one,
            short={
                accelerator: shortage
                for accelerator, shortage in one.short.items()
                if accelerator not in has_room.get(_key_of(name), ())
            },
        )
        for name, one in memory.services.items()
    }
    return replace(memory, services=services)


def _key_of(name: str) -> Key:
    namespace, _, own = name.partition("/")
    return namespace, own
