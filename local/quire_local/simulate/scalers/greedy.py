"""The cheapest type first, by its price alone.

By the saturation rule of llm-d's workload variant autoscaler: where the replicas that are not
saturated have on average less than a tenth of their KV blocks, or less than three places of their
queues, to spare, one replica of the cheapest type comes; where one fewer would still have that
much, one of the dearest goes. Saturated is who uses 0.8 of its blocks, or has 5 waiting.
"""

from collections.abc import Mapping
from typing import NamedTuple

from quire_engine.protocol.state import EngineState
from quire_local.simulate.fleet import Status
from quire_local.simulate.hardware import EngineType
from quire_local.simulate.observing import Observation, Scaled, Scaler

_KV_USE = 0.8
_QUEUE = 5
_SPARE_KV = 0.1
_SPARE_QUEUE = 3
_DOWN_SECONDS = 300.0


class GreedyScaler(Scaler):
    """Adds what costs least, takes away what costs most."""

    name = "greedy"
    period_seconds = 30.0
    is_prophet = False
    has_deadlines = False

    def __init__(
        self, types: Mapping[str, EngineType], first: Mapping[str, int], max_replicas: int
    ) -> None:
        self._types = sorted(types.values(), key=lambda one: one.dollars_per_hour)
        self._first = first
        self._max_replicas = max_replicas
        self._spare_since: float | None = None

    def begin(self) -> Mapping[str, int]:
        """See `Scaler`."""
        return self._first

    def decide(self, seen: Observation) -> Scaled:
        """See `Scaler`."""
        ready = [r for r in seen.replicas if r.status is Status.READY and r.state]
        states = [r.state for r in ready if r.state is not None]
        queued = sum(gateway.num_waiting for gateway in seen.gateways) / max(len(states), 1)
        loads = [_Load.of(state, queued) for state in states]
        is_coming = any(r.status in (Status.PENDING, Status.STARTING) for r in seen.replicas)
        if _is_short(loads):
            self._spare_since = None
            return Scaled(replicas={}) if is_coming else self._add(seen)
        if len(loads) > 1 and not is_coming and _would_do_with_fewer(loads):
            if self._spare_since is None:
                self._spare_since = seen.now
            if seen.now - self._spare_since >= _DOWN_SECONDS:
                return self._take_away(seen)
        else:
            self._spare_since = None
        return Scaled(replicas={})

    def _add(self, seen: Observation) -> Scaled:
        if sum(seen.ordered.values()) >= self._max_replicas:
            return Scaled(replicas={})
        for kind in self._types:
            if seen.ordered[kind.name] < kind.num_nodes:
                return Scaled(replicas={kind.name: seen.ordered[kind.name] + 1}, reason="saturated")
        return Scaled(replicas={})

    def _take_away(self, seen: Observation) -> Scaled:
        self._spare_since = seen.now
        for kind in reversed(self._types):
            if seen.ordered[kind.name] > 0:
                return Scaled(replicas={kind.name: seen.ordered[kind.name] - 1}, reason="spare")
        return Scaled(replicas={})


class _Load(NamedTuple):
    """Of one replica; what waits in gateways is everybody's."""

    use: float
    waiting: float

    @classmethod
    def of(cls, state: EngineState, queued: float) -> "_Load":
        return cls(state.blocks.held / state.blocks.total, state.sequences.waiting + queued)


def _is_short(loads: list[_Load]) -> bool:
    free = [one for one in loads if one.use < _KV_USE and one.waiting < _QUEUE]
    if not free:
        return True
    spare_kv = sum(_KV_USE - one.use for one in free) / len(free)
    spare_queue = sum(_QUEUE - one.waiting for one in free) / len(free)
    return spare_kv < _SPARE_KV or spare_queue < _SPARE_QUEUE


def _would_do_with_fewer(loads: list[_Load]) -> bool:
    """Whether one fewer would have enough to spare, if the others took over evenly."""
    rest = len(loads) - 1
    use = sum(one.use for one in loads) / rest
    waiting = sum(one.waiting for one in loads) / rest
    return _KV_USE - use >= _SPARE_KV and _QUEUE - waiting >= _SPARE_QUEUE
