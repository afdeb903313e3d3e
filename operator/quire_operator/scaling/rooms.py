"""Which GPUs a service may have: what nodes there are, what was found short, and who comes first.

That a cluster has no node with some GPU today does not mean that it gets none: an autoscaler may
bring one. So a limit is known only where the stock is final, or where a replica has waited longer
than its provisionTimeout. Then services of higher priority are served first; among equals, who has
a GPU keeps it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from quire_operator.scaling.decision import ServiceMemory
from quire_operator.scaling.inputs import (
    AcceleratorInputs,
    GpuStock,
    Replica,
    ScalingInputs,
    ServiceInputs,
)
from quire_operator.scaling.mix import Room

_Products = tuple[str, ...]


def find_short(
    service: ServiceInputs, memory: ServiceMemory, inputs: ScalingInputs
) -> dict[str, float]:
    """Accelerators that found no node in time, and since when; after a while they are tried again.

    What gets a node meanwhile counts at once, for the limit is what has one.
    """
    short = {}
    for accelerator in service.accelerators:
        since = memory.short_since.get(accelerator.name)
        if since is not None and 0 <= inputs.now - since < inputs.retry_accelerator_seconds:
            short[accelerator.name] = since
        elif _waits_too_long(service, accelerator, inputs.now):
            short[accelerator.name] = inputs.now
    return short


def _waits_too_long(service: ServiceInputs, accelerator: AcceleratorInputs, now: float) -> bool:
    return any(
        now - one.waiting_since >= accelerator.provision_timeout_seconds
        for one in service.replicas
        if one.accelerator == accelerator.name
        and one.waiting_since is not None
        and not one.is_ending
    )


def num_scheduled(service: ServiceInputs, accelerator: str) -> int:
    """Replicas on an accelerator that have a node."""
    return sum(_is_there(one, accelerator) and one.is_scheduled for one in service.replicas)


def _is_there(replica: Replica, accelerator: str) -> bool:
    return replica.accelerator == accelerator and not replica.is_ending


class Rooms:
    """GPUs of the cluster, while services are served one after another, the most important first.

    Parameters
    ----------
    short
        By service, its accelerators that found no node in time.
    """

    def __init__(self, inputs: ScalingInputs, short: Mapping[str, Mapping[str, float]]) -> None:
        self._stock = {one.product: one for one in inputs.stock}
        self._services = {one.key: one for one in inputs.services}
        self._decided: dict[str, Mapping[str, int]] = {}
        self._short = short
        self._limits = self._find_limits(inputs.services, short)

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
                taken = sum(self._taken(other, products, service) for other in self._services)
                left = max(most - taken, 0)
                if gpus.keys() & self._short.get(service.key, {}).keys():
                    # what waits for a node may wait on: perhaps one is being made
                    waiting = [service.ordered.get(name, 0) * each for name, each in gpus.items()]
                    left = max(left, sum(waiting))
                found.append(Room(gpus=gpus, most=left))
        return tuple(found)

    def decide(self, service: ServiceInputs, replicas: Mapping[str, int]) -> None:
        """Note what a service gets."""
        self._decided[service.key] = replicas

    def _taken(self, other: str, products: _Products, service: ServiceInputs) -> int:
        """GPUs that another service has before this one."""
        one = self._services[other]
        if other == service.key:
            return 0
        if other in self._decided:
            replicas = self._decided[other]
        elif one.priority >= service.priority:
            replicas = one.ordered
        else:
            replicas = {each.name: each.min_replicas for each in one.accelerators}
        return sum(
            replicas.get(each.name, 0) * each.gpus_per_replica
            for each in one.accelerators
            if each.products and set(each.products) <= set(products)
        )

    def _find_limits(
        self, services: Sequence[ServiceInputs], short: Mapping[str, Mapping[str, float]]
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
                stocks: list[GpuStock | None] = [self._stock.get(one) for one in products]
                if all(one is not None and one.is_final for one in stocks):
                    limits[products] = sum(one.num_gpus for one in stocks if one)
                elif accelerator.name in short.get(service.key, {}):
                    used = sum(in_use[one] for one in products)
                    limits[products] = min(used, limits.get(products, used))
        return limits
