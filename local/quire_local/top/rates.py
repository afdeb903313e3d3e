"""What two looks tell per second, and how long first bytes took between them."""

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable

from quire_local.top.look import Buckets, GatewayLook, Look, ServiceKey, ServiceTold

_WINDOW_SECONDS = 15.0
"""What is shown as a rate is the mean over so long."""


class Rates:
    """Keeps the looks of the last seconds; pure, by the times that looks carry."""

    def __init__(self) -> None:
        self._looks: deque[Look] = deque()

    def add(self, look: Look) -> None:
        """Take up a newer look."""
        self._looks.append(look)
        while len(self._looks) > 2 and look.at - self._looks[1].at >= _WINDOW_SECONDS:
            self._looks.popleft()

    def of_service(self, key: ServiceKey, count: Callable[[ServiceTold], float]) -> float | None:
        """What the gateways counted of a service, per second; None before they have twice."""
        return self._per_second(
            lambda gateway: sum(
                (count(one) for one in gateway.fleet.services if one.key == key), 0.0
            )
        )

    def of_engine(self, count: Callable[[Look], float | None]) -> float | None:
        """What an engine counted, per second; None where it does not say or began anew."""
        if len(self._looks) < 2:
            return None
        first, last = self._looks[0], self._looks[-1]
        before, after = count(first), count(last)
        if before is None or after is None or after < before:
            return None
        return (after - before) / (last.at - first.at)

    def first_byte(self, key: ServiceKey, share: float) -> float | None:
        """A quantile of seconds to the first byte; None if there was none."""
        if len(self._looks) < 2:
            return None
        counts: defaultdict[float, float] = defaultdict(float)
        for before, after in self._pairs():
            old = before.first_byte.get(key, {})
            for bound, number in after.first_byte.get(key, {}).items():
                counts[bound] += max(number - old.get(bound, 0.0), 0.0)
        return quantile(counts, share)

    def _per_second(self, count: Callable[[GatewayLook], float]) -> float | None:
        pairs = list(self._pairs()) if len(self._looks) > 1 else []
        if not pairs:
            return None
        seconds = self._looks[-1].at - self._looks[0].at
        return sum(max(count(after) - count(before), 0.0) for before, after in pairs) / seconds

    def _pairs(self) -> Iterable[tuple[GatewayLook, GatewayLook]]:
        """Each gateway of the newest look, with itself as it was; a restart changes its name."""
        before = {one.fleet.gateway: one for one in self._looks[0].gateways}
        for after in self._looks[-1].gateways:
            if after.fleet.gateway in before:
                yield before[after.fleet.gateway], after


def quantile(buckets: Buckets, share: float) -> float | None:
    """A quantile of cumulative counts, as Prometheus computes it."""
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0.0
    if total <= 0:
        return None
    wanted, below, under = share * total, 0.0, 0.0
    for bound in bounds:
        here = buckets[bound]
        if here >= wanted:
            if math.isinf(bound):
                return below
            return below + (bound - below) * (wanted - under) / (here - under)
        below, under = bound, here
    raise RuntimeError("bug: the last bucket has all")
