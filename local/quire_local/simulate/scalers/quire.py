"""The operator's own scaling, given what gateways and engines say in the simulation."""

from collections.abc import Mapping, Sequence

from quire_local.simulate.fleet import Status
from quire_local.simulate.hardware import UNLIMITED, EngineType, Limits, ServiceLevel
from quire_local.simulate.observing import GatewaySeen, Observation, ReplicaSeen, Scaled, Scaler
from quire_local.simulate.sizing import capability, promises
from quire_operator.scaling.decide import decide
from quire_operator.scaling.decision import ScalingMemory, ServiceDecision
from quire_operator.scaling.inputs import (
    AcceleratorInputs,
    GatewayFigures,
    GpuStock,
    MemoryPressure,
    Replica,
    ScalingInputs,
    ServiceInputs,
    engine_figures,
)

_KEY = "d/s"
"""Of a service that is alone."""


class QuireScaler(Scaler):
    """Asks `quire_operator.scaling` every 5 seconds.

    Parameters
    ----------
    types
        Those that it may use.
    forgets_after
        Its memory is lost so often, as by a restart of the operator; None: never.
    """

    period_seconds = 5.0
    is_prophet = False
    has_deadlines = True

    def __init__(
        self,
        types: Sequence[EngineType],
        first: Mapping[str, int],
        *,
        slo: ServiceLevel,
        limits: Limits,
        min_replicas: int = 1,
        max_replicas: int,
        max_dollars_per_hour: float | None = None,
        forgets_after: float | None = None,
        name: str = "quire",
    ) -> None:
        self.name = name
        self._types = types
        self._first = first
        self._slo = slo
        self.limits = limits
        """As the resource has them; they may be changed."""
        self._bounds = min_replicas, max_replicas
        self._max_dollars_per_hour = max_dollars_per_hour
        self._forgets_after = forgets_after
        self._began_at = 0.0
        self._memory = ScalingMemory()

    def begin(self) -> Mapping[str, int]:
        """See `Scaler`."""
        return self._first

    def decide(self, seen: Observation) -> Scaled:
        """See `Scaler`."""
        if self._forgets_after is not None and seen.now - self._began_at >= self._forgets_after:
            self._memory, self._began_at = ScalingMemory(), seen.now
        inputs = ScalingInputs(
            now=seen.now, services=(self.inputs(seen),), stock=stock_of(self._types)
        )
        decision, self._memory = decide(inputs, self._memory)
        return scaled_of(decision.of(_KEY))

    def inputs(self, seen: Observation, key: str = _KEY, priority: int = 0) -> ServiceInputs:
        """What is decided from, as the operator would have it."""
        names = {kind.name for kind in self._types}
        low, high = self._bounds
        limits = self.limits
        return ServiceInputs(
            key=key,
            priority=priority,
            min_replicas=low,
            max_replicas=high,
            max_cost_per_hour=self._max_dollars_per_hour,
            slo=promises(self._slo),
            pressure=MemoryPressure(
                target=limits.target, background=limits.background, admission=limits.admission
            ),
            max_queue_seconds=limits.max_queue_seconds,
            accelerators=tuple(_accelerator(kind, high) for kind in self._types),
            replicas=tuple(_replica(one) for one in seen.replicas if one.engine_type in names),
            ordered={name: count for name, count in seen.ordered.items() if name in names},
            gateways=tuple(map(_gateway, seen.gateways)),
            num_gateways=seen.num_gateways,
        )


def stock_of(types: Sequence[EngineType]) -> tuple[GpuStock, ...]:
    """GPUs whose number is known."""
    return tuple(
        GpuStock(product=kind.name, num_gpus=kind.num_nodes, is_final=True)
        for kind in types
        if kind.num_nodes < UNLIMITED
    )


def scaled_of(decision: ServiceDecision) -> Scaled:
    """A decision in the simulation's terms."""
    return Scaled(
        replicas=dict(decision.replicas),
        reason=decision.reason,
        victims=tuple(decision.victims),
        shares=dict(decision.traffic_shares),
    )


def _accelerator(kind: EngineType, most: int) -> AcceleratorInputs:
    return AcceleratorInputs(
        name=kind.name,
        products=(kind.name,),
        cost_per_hour=kind.dollars_per_hour,
        max_replicas=most,
        expected=capability(kind),
    )


def _replica(seen: ReplicaSeen) -> Replica:
    return Replica(
        name=seen.name,
        accelerator=seen.engine_type,
        is_scheduled=seen.status is not Status.PENDING,
        is_ready=seen.status in (Status.READY, Status.DRAINING),
        is_ending=seen.status is Status.DRAINING,
        waiting_since=seen.waiting_since,
        engine=engine_figures(seen.state, seen.silent_seconds) if seen.state else None,
    )


def _gateway(seen: GatewaySeen) -> GatewayFigures:
    demand = seen.demand
    return GatewayFigures(
        gateway=seen.name,
        seconds=demand.seconds,
        prompt_bounds=demand.prompt_bounds,
        output_bounds=demand.output_bounds,
        arrivals=tuple(demand.arrivals),
        ended=tuple(map(tuple, demand.ended)),
        prompt_tokens=demand.prompt_tokens,
        output_tokens=demand.output_tokens,
        cached_tokens=demand.cached_tokens,
        num_unserved=demand.num_unserved,
        num_first_token_met=demand.first_token.met,
        num_first_token_missed=demand.first_token.missed,
        num_per_token_met=demand.output_token.met,
        num_per_token_missed=demand.output_token.missed,
        num_waiting=seen.num_waiting,
        oldest_seconds=seen.oldest_seconds,
    )
