"""Which GPUs a service may have: what nodes there are, what was found short, and who comes first.

That a cluster has no node with some GPU today does not mean that it gets none: an autoscaler may
bring one. So a limit is known only where the stock is final, or where an accelerator is short (see
`shortages`): however often one service has tried in vain, the others try as soon as after its first
time. Then the minReplicas of all services come first, and above them those of higher
priority; among equals, who has a GPU keeps it.
"""

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence

from quire_operator.scaling.decision import Shortage
from quire_operator.scaling.fleet import num_scheduled
from quire_operator.scaling.inputs import (
    AcceleratorInputs,
    ScalingInputs,
    ServiceInputs,
)
from quire_operator.scaling.mix import Room

_Products = tuple[str, ...]
_MOST_SETS = 64
"""Of products that are looked at together."""


class Rooms:
    """GPUs of the cluster, while services are served one after another, the most important first.

    Parameters
    ----------
    short
        By service, its accelerators that found no node in time.
    """

    def __init__(self, inputs: ScalingInputs, short: Mapping[str, Mapping[str, Shortage]]) -> None:
        self._stock = {one.product: one for one in inputs.stock}
        self._services = {one.key: one for one in inputs.services}
        self._decided: dict[str, Mapping[str, int]] = {}
        self._granted: dict[tuple[str, _Products], int] = {}
        """Of the GPUs that there are, what a service may have: what it orders beyond waits."""
        self._short = short
        self._limits = self._find_limits(inputs.services, short)
        self._newly_short = {
            tuple(sorted(accelerator.products))
            for service in inputs.services
            for accelerator in service.accelerators
            if (found := short.get(service.key, {}).get(accelerator.name))
            and inputs.now < found.since + inputs.retry_accelerator_seconds
        }

    def of(self, service: ServiceInputs) -> tuple[Room, ...]:
        """What a service may have, of GPUs whose number is known."""
        found = []
        for products, most in self._limits.items():
            gpus = {
                one.name: one.gpus_per_replica
                for one in service.accelerators
                if one.products and set(one.products) <= set(products)
            }
            if gpus:
                before, beside = self._taken(products, service)
                least = _gpus(least_of(service), service, products)
                left = max(most - before - beside, min(least, most - before), 0)
                self._granted[service.key, products] = left
                is_short = bool(gpus.keys() & self._short.get(service.key, {}).keys())
                if is_short and not self._is_final(products):
                    # what waits for a node may wait on: perhaps one is being made
                    waiting = [service.ordered.get(name, 0) * each for name, each in gpus.items()]
                    left = max(left, sum(waiting))
                if is_short or self._holds_for_all(products):
                    found.append(Room(gpus=gpus, most=left, others=self._others(products, service)))
        return tuple(found)

    def decide(self, service: ServiceInputs, replicas: Mapping[str, int]) -> None:
        """Note what a service gets."""
        self._decided[service.key] = replicas

    def keep(self, service: ServiceInputs) -> None:
        """Note that a service stays as it is: of what it has ordered, what it may have counts."""
        self.of(service)
        self.decide(service, service.ordered)

    def _taken(self, products: _Products, service: ServiceInputs) -> tuple[int, int]:
        """GPUs of others: of those that were decided before this one, and to be left to the rest.

        To the rest is left what keeps them alive, and to those of the same priority what they have.
        """
        before = beside = 0
        for key, other in self._services.items():
            if key == service.key:
                continue
            if key in self._decided:
                ordered = _gpus(self._decided[key], other, products)
                before += min(ordered, self._granted.get((key, products), ordered))
                continue
            least = least_of(other)
            if other.priority >= service.priority:
                least = {name: max(least[name], other.ordered.get(name, 0)) for name in least}
            beside += _gpus(least, other, products)
        return before, beside

    def _others(self, products: _Products, service: ServiceInputs) -> tuple[str, ...]:
        """Services of higher priority that have some of these GPUs."""
        return tuple(
            key
            for key, replicas in self._decided.items()
            if self._services[key].priority > service.priority
            and _gpus(replicas, self._services[key], products)
        )

    def _find_limits(
        self, services: Sequence[ServiceInputs], short: Mapping[str, Mapping[str, Shortage]]
    ) -> dict[_Products, int]:
        """GPUs by sets of products, where their number is known."""
        limits: dict[_Products, int] = {}
        in_use: Counter[str] = Counter()
        for service in services:
            for accelerator in service.accelerators:
                scheduled = num_scheduled(service, accelerator.name) * accelerator.gpus_per_replica
                if accelerator.products:
                    in_use[accelerator.products[0]] += scheduled
        for service in services:
            for accelerator in service.accelerators:
                products = tuple(sorted(accelerator.products))
                if not products:
                    continue
                if self._is_final(products):
                    limits[products] = sum(self._stock[one].num_gpus for one in products)
                elif found := short.get(service.key, {}).get(accelerator.name):
                    known = sum(in_use[one] for one in products) + found.num_freed
                    limits[products] = min(known, limits.get(products, known))
        return limits | self._join([frozenset(one) for one in limits if self._is_final(one)])

    def _holds_for_all(self, products: _Products) -> bool:
        """Whether those who found none of them short may not try for any yet, either."""
        return self._is_final(products) or products in self._newly_short

    def _is_final(self, products: _Products) -> bool:
        return all(one in self._stock and self._stock[one].is_final for one in products)

    def _join(self, sets: Sequence[frozenset[str]]) -> dict[_Products, int]:
        """Limits of sets that overlap, together: each alone may be kept, and all cannot.

        All unions of sets that hang together; of more than there is time for, the small ones, and
        all that hangs together.
        """
        joined = dict.fromkeys(sets)
        waiting = deque(sets)
        while waiting and len(joined) <= _MOST_SETS:
            one = waiting.popleft()
            more = dict.fromkeys(one | other for other in sets if one & other)
            waiting += [other for other in more if other not in joined]
            joined |= more
        joined |= dict.fromkeys(_components(sets))
        return {
            tuple(sorted(one)): sum(self._stock[product].num_gpus for product in one)
            for one in joined
        }


def _components(sets: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    """Unions of all sets that hang together."""
    found: list[frozenset[str]] = []
    for one in sets:
        apart = [other for other in found if not one & other]
        whole = one.union(*(other for other in found if one & other))
        found = [*apart, whole]
    return found


def least_of(service: ServiceInputs) -> dict[str, int]:
    """Replicas by accelerator that a service keeps, whoever is more important.

    Those of its accelerators, and of minReplicas the cheapest that there are.
    """
    if service.is_suspended:
        return dict.fromkeys((one.name for one in service.accelerators), 0)
    found = {one.name: min(one.min_replicas, one.max_replicas) for one in service.accelerators}
    left = min(service.min_replicas, service.max_replicas) - sum(found.values())
    cheapest = sorted(service.accelerators, key=_price)
    for has_some in (True, False):
        for one in cheapest:
            most = service.ordered.get(one.name, 0) if has_some else one.max_replicas
            more = max(min(most, one.max_replicas) - found[one.name], 0)
            more = min(more, max(left, 0)) if not one.unusable_because else 0
            found[one.name] += more
            left -= more
    return found


def _price(accelerator: AcceleratorInputs) -> tuple[float, str]:
    price = accelerator.cost_per_hour
    return math.inf if price is None else price, accelerator.name


def _gpus(replicas: Mapping[str, int], service: ServiceInputs, products: _Products) -> int:
    """Of these products, that replicas of a service take."""
    return sum(
        replicas.get(one.name, 0) * one.gpus_per_replica
        for one in service.accelerators
        if one.products and set(one.products) <= set(products)
    )
