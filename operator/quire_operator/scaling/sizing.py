"""From rates to what replicas must carry, and from that to replicas.

Rates are made larger by what replicas do less than computed, as promises that were not kept have
shown, and by chance: few requests come less evenly than many. The mean is planned to stay at the
target, and the mean and its usual deviation within what there is.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist

from quire_operator.scaling.clamping import Limit, Limits
from quire_operator.scaling.demand import Demand
from quire_operator.scaling.fleet import Fleet
from quire_operator.scaling.inputs import ServiceInputs
from quire_operator.scaling.mix import Mix, Option, choose
from quire_operator.scaling.offers import Offers
from quire_operator.scaling.parts import least_cost
from quire_operator.scaling.spreading import Carried, carry
from quire_operator.scaling.ways import all_ways, choose_of, spare_the_slow

SLACK = 0.1
"""So much over the target adds no replica yet."""
_DOUBT = 0.5
"""Standard deviations of what the window counted, that what is left must carry besides."""
_UNLIKE = 2.0
"""Variance of requests' work as a sum, over that of their number: some are longer than others."""
_EVENED_OUT = 0.5
"""What is left of a deviation after requests have waited, within what is promised, for it to pass.
"""
_FULL = 1.0 + 1e-3
_MORE = (1, 2, 4, 8)
"""Replicas of each accelerator, that are tried beside those that there are."""
_SEVERAL = 2
"""Accelerators: where there is one, it takes everything."""


@dataclass(frozen=True, kw_only=True)
class Sizing:
    """Replicas of one service for rates of its buckets."""

    service: ServiceInputs
    offers: Offers
    fleet: Fleet
    limits: Limits

    def load(self, counts: Mapping[str, int], rates: Sequence[float]) -> float:
        """Load of these replicas; 1 is the target."""
        return self.spread(counts, rates).load

    def spread(
        self, counts: Mapping[str, int], rates: Sequence[float], low_enough: float = 0.0
    ) -> Carried:
        """How these replicas carry it best: all sharing all, or with long prompts kept apart.

        Parameters
        ----------
        low_enough
            A load for which no better way is looked for.
        """
        whole = carry(self.options, counts, rates)
        if whole.load <= low_enough or math.isinf(whole.load):
            return whole
        return min([whole, *self._spread_apart(counts, rates)], key=lambda way: way.load)

    def spread_all_ways(self, counts: Mapping[str, int], rates: Sequence[float]) -> list[Carried]:
        """The same in each way that there is: all sharing all, and then the others."""
        return [carry(self.options, counts, rates), *self._spread_apart(counts, rates)]

    def _spread_apart(self, counts: Mapping[str, int], rates: Sequence[float]) -> list[Carried]:
        there = frozenset(name for name, count in counts.items() if count > 0)
        ways = self._apart_of(there) if len(there) >= _SEVERAL else []
        return [carry(options, counts, rates) for options in ways]

    def is_enough(self, counts: Mapping[str, int], rates: Sequence[float]) -> bool:
        """Whether these replicas carry all."""
        is_any = sum(counts.values()) > 0
        return is_any and self.spread(counts, rates, low_enough=_FULL).load <= _FULL

    def grow(self, rates: Sequence[float]) -> Mix:
        """The cheapest replicas to add to those that there are."""
        fleet = self.fleet
        clamped = self.limits.clamp(fleet.ordered)
        made = []
        for limit in self.limits.limits:
            ordered, kept = fleet.ordered[limit.name], clamped[limit.name]
            made.append(
                self._option(
                    limit,
                    lowest=kept,
                    highest=kept if limit.name in fleet.blocked else limit.highest,
                    num_idle=min(ordered - fleet.useful[limit.name], kept),
                )
            )
        return self._choose(made, rates)

    def afresh(self, rates: Sequence[float]) -> Mix:
        """The cheapest replicas, whatever there is: what has to come costs a little."""
        fleet = self.fleet
        made = []
        for limit in self.limits.limits:
            most = fleet.useful[limit.name] if limit.name in fleet.blocked else limit.highest
            if self.offers.find(limit.name) is None:
                most = limit.lowest  # it would be of no use
            made.append(self._option(limit, lowest=limit.lowest, highest=min(most, limit.highest)))
        return self._choose(made, rates)

    def has_surplus(self, rates: Sequence[float]) -> bool:
        """Whether any replica may go: then `shrink` says which; it takes longer."""
        fleet, counts = self.fleet, self.fleet.useful
        if counts != fleet.ordered:
            return True
        if sum(counts.values()) <= self.limits.bounds.fewest:
            return False
        return self.is_enough(counts, rates) and any(
            counts[one.name] > one.lowest
            and self.is_enough({**counts, one.name: counts[one.name] - 1}, rates)
            for one in self.limits.limits
        )

    def may_surely_carry(self, rates: Sequence[float]) -> bool:
        """Whether `afresh` surely finds replicas for these: a look that costs a tenth of it.

        Those that there are, and one, two, four, ... more of each, are tried.
        """
        tried: dict[str, int] = {}
        for more in _MORE:
            before, tried = tried, self._with_more(more)
            if tried == before or not any(tried.values()) or not self.limits.allow(tried):
                return False
            if self.spread(tried, rates, low_enough=1.0).load <= 1.0:
                return True
        return False

    def _with_more(self, more: int) -> dict[str, int]:
        """What there is and so many more of each, as far as each may be."""
        useful, blocked = self.fleet.useful, self.fleet.blocked
        tried = {}
        for one in self.limits.limits:
            is_growing = useful[one.name] > 0 and one.name not in blocked
            most = useful[one.name] if self.offers.find(one.name) else one.lowest
            tried[one.name] = max(min(most + more * is_growing, one.highest), one.lowest)
        return tried

    def least_cost(self, rates: Sequence[float], most: float = math.inf) -> float:
        """What replicas for these rates that cost no more than `most` cost at least, an hour."""
        ways = (self.options, *self._apart_of(self._possible))
        return min(least_cost(one, rates, most) for one in ways)

    def shrink(self, rates: Sequence[float]) -> Mix:
        """The cheapest part of what there is that is not below the minimum.

        Of what is on its way, none is given up.
        """
        made = []
        for one in self.limits.limits:
            useful = self.fleet.useful[one.name]
            is_coming = useful > self.fleet.ready[one.name]
            lowest = useful if is_coming else min(one.lowest, useful)
            made.append(self._option(one, lowest=lowest, highest=useful))
        return self._with_fewest(self._choose(made, rates))

    def _with_fewest(self, mix: Mix) -> Mix:
        """With as many of what is of no use as makes the minimum: it may be of use yet."""
        ordered, limits = self.fleet.ordered, self.limits
        replicas = {
            one.name: max(mix.replicas[one.name], min(one.lowest, ordered[one.name]))
            for one in limits.limits
        }
        for one in sorted(limits.limits, key=lambda one: one.cost):
            missing = limits.bounds.fewest - sum(replicas.values())
            replicas[one.name] += max(min(missing, ordered[one.name] - replicas[one.name]), 0)
        if replicas == mix.replicas:
            return mix
        return replace(mix, replicas=replicas, cost=limits.cost(replicas))

    def first(self, num: int) -> dict[str, int]:
        """So many replicas, the cheapest that serve typical requests."""
        bounds = replace(self.limits.bounds, fewest=min(num, self.limits.bounds.most))
        options = [
            self._option(one, lowest=one.lowest, highest=one.highest if self._is_of_use(one) else 0)
            for one in self.limits.limits
        ]
        return dict(choose(options, [], bounds).replicas)

    def _is_of_use(self, limit: Limit) -> bool:
        return limit.name not in self.fleet.blocked and self.offers.find(limit.name) is not None

    @cached_property
    def options(self) -> list[Option]:
        """All accelerators, without bounds."""
        return [self._option(one) for one in self.limits.limits]

    @cached_property
    def _possible(self) -> frozenset[str]:
        """Accelerators of which there are some, or may be."""
        able = {one.name for one in self.limits.limits if max(one.lowest, one.highest) > 0}
        there = {name for name, count in self.fleet.useful.items() if count}
        return frozenset(able - self.fleet.blocked | there)

    def _apart_of(self, names: frozenset[str]) -> list[list[Option]]:
        """Those of these names, without bounds, where long prompts are kept apart among them."""
        if names not in self._known_apart:
            of_these = [one for one in self.options if one.name in names]
            self._known_apart[names] = spare_the_slow(of_these, self.offers.quick_loads)
        return self._known_apart[names]

    @cached_property
    def _known_apart(self) -> dict[frozenset[str], list[list[Option]]]:
        return {}

    def _choose(self, options: Sequence[Option], rates: Sequence[float]) -> Mix:
        ways = all_ways(options, self.offers.quick_loads)
        return choose_of(ways, rates, self.limits.bounds)

    def _option(
        self, limit: Limit, *, lowest: int = 0, highest: int = 0, num_idle: int = 0
    ) -> Option:
        return Option(
            name=limit.name,
            cost=limit.cost,
            loads=self.offers.loads.get(limit.name, self.offers.nothing),
            lowest=lowest,
            highest=max(highest, lowest),
            current=self.fleet.ordered[limit.name],
            num_idle=num_idle,
        )


def chance_factor(
    service: ServiceInputs, demand: Demand, residence_seconds: float, correction: float
) -> float:
    """By how much rates are planned larger than they are."""
    running = demand.rate * residence_seconds * correction
    if running <= 0:
        return correction
    z = NormalDist().inv_cdf(min(max(service.slo.percentile, 50), 99) / 100)
    deviation = _EVENED_OUT * z * math.sqrt(demand.dispersion / running)
    return correction * max(1.0, service.pressure.target * (1.0 + deviation))


def window_factor(service: ServiceInputs, demand: Demand) -> float:
    """By how much more than the stabilization window counted what is left must carry.

    What was counted is chance in part: of few requests more.
    """
    seconds = max(service.down_seconds, demand.window_seconds)
    count = max(demand.rate * seconds, 1.0)
    return 1.0 + _DOUBT * math.sqrt(_UNLIKE * demand.dispersion / count)
