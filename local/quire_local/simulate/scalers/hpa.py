"""Kubernetes' HorizontalPodAutoscaler, and rules that people give it.

    keda   KEDA's usual trigger for model servers: 5 waiting requests a replica, on average
    hpa    KV blocks in use: 0.8 of each replica's, on average

Both scale one Deployment, so one type of GPU. As the defaults have it: every 15 s, at most doubled
or 4 more at a time, nothing within a tenth of the goal, down by what was the most of 5 minutes.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from math import ceil

from quire_local.simulate.fleet import Status
from quire_local.simulate.observing import Observation, Scaled, Scaler

PERIOD_SECONDS = 15.0
_TOLERANCE = 0.1
_DOWN_SECONDS = 300.0
_MOST_MORE = 4
WAITING_PER_REPLICA = 5
KV_USE = 0.8


class HpaScaler(Scaler, ABC):
    """The controller's loop around one rule.

    Parameters
    ----------
    engine_type
        The type that it scales.
    """

    period_seconds = PERIOD_SECONDS
    is_prophet = False

    def __init__(
        self, engine_type: str, *, first_replicas: int, min_replicas: int, max_replicas: int
    ) -> None:
        self.engine_type = engine_type
        self._first = first_replicas
        self._bounds = min_replicas, max_replicas
        self._recommended = deque([(0.0, first_replicas)])

    def begin(self) -> Mapping[str, int]:
        """See `Scaler`."""
        return {self.engine_type: self._first}

    def decide(self, seen: Observation) -> Scaled:
        """See `Scaler`."""
        current = seen.ordered[self.engine_type]
        wanted = self.recommend(seen, current)
        wanted = min(wanted, max(2 * current, current + _MOST_MORE))
        self._recommended.append((seen.now, wanted))
        while self._recommended[0][0] < seen.now - _DOWN_SECONDS:
            self._recommended.popleft()
        if wanted < current:
            wanted = min(max(count for _, count in self._recommended), current)
        low, high = self._bounds
        return Scaled(
            replicas={self.engine_type: min(max(wanted, low), high)}, reason=self.describe(seen)
        )

    @abstractmethod
    def describe(self, seen: Observation) -> str:
        """What the rule looks at, for people."""

    @abstractmethod
    def recommend(self, seen: Observation, current: int) -> int:
        """Return how many replicas the rule wants now."""


class KedaScaler(HpaScaler):
    """So many waiting requests a replica."""

    name = "keda"
    has_deadlines = False

    def describe(self, seen: Observation) -> str:
        """See `HpaScaler`."""
        return f"{seen.num_waiting} requests wait, and {WAITING_PER_REPLICA} may at each replica"

    def recommend(self, seen: Observation, current: int) -> int:
        """An average value: what waits, divided by what may wait at each."""
        goal = WAITING_PER_REPLICA * max(current, 1)
        if abs(seen.num_waiting / goal - 1.0) <= _TOLERANCE:
            return current
        return ceil(seen.num_waiting / WAITING_PER_REPLICA)


class KvUseScaler(HpaScaler):
    """Such a share of the KV blocks in use."""

    name = "hpa"
    has_deadlines = True

    def describe(self, seen: Observation) -> str:
        """See `HpaScaler`."""
        return f"{self._use(seen):.0%} of the KV blocks are in use, and {KV_USE:.0%} are to be"

    def _use(self, seen: Observation) -> float:
        ready = [r.state.blocks for r in seen.of_type(self.engine_type, Status.READY) if r.state]
        return sum(blocks.held / blocks.total for blocks in ready) / max(len(ready), 1)

    def recommend(self, seen: Observation, current: int) -> int:
        """Replicas times use, divided by the goal; those that are not ready count as unused."""
        ready = [r for r in seen.of_type(self.engine_type, Status.READY) if r.state]
        if not ready:
            return current
        ratio = self._use(seen) / KV_USE
        if abs(ratio - 1.0) <= _TOLERANCE:
            return current
        if ratio > 1.0:  # who is not ready yet counts as unused, when more are wanted
            ratio *= len(ready) / max(current, len(ready))
            return max(ceil(ratio * max(current, len(ready))), current)
        return ceil(ratio * len(ready))
