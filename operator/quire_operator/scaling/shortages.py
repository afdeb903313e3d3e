"""Which accelerators found no node in time, what was freed since, and when that is forgotten.

found      a replica has waited for longer than provisionTimeout; or it lost its node, nothing
           else serves, and somebody waits
freed      there are more GPUs that our replicas do not have than at any time since: as many may
           be used at once. What other people's pods give back is not seen
forgotten  after a while; and where nothing runs, and nothing else may be begun with: `decide`
           sees to that
"""

from collections import Counter

from quire_operator.scaling.decision import ServiceMemory, Shortage
from quire_operator.scaling.fleet import is_there
from quire_operator.scaling.inputs import AcceleratorInputs, Replica, ScalingInputs, ServiceInputs

_GONE_SECONDS = 10.0
"""A pod in the place of another finds a node within these, if there is one."""


class Shortages:
    """Of all services at one moment."""

    def __init__(self, inputs: ScalingInputs) -> None:
        self._now = inputs.now
        self._retry_seconds = inputs.retry_accelerator_seconds
        self._free = Counter({one.product: one.num_gpus for one in inputs.stock})
        for service in inputs.services:
            accelerators = {one.name: one for one in service.accelerators if one.products}
            for replica in service.replicas:
                taken = accelerators.get(replica.accelerator)
                # one that ends has its GPUs until it is gone
                if taken is not None and replica.is_scheduled:
                    self._free[taken.products[0]] -= taken.gpus_per_replica

    def find(self, service: ServiceInputs, memory: ServiceMemory) -> dict[str, Shortage]:
        """Accelerators that are short.

        What gets a node meanwhile counts at once, for the limit is what has one.
        """
        if service.is_suspended:
            return {}
        found = {one.name: self._look(service, one, memory) for one in service.accelerators}
        short = {name: one for name, one in found.items() if one is not None}
        if not short and _is_deserted(service):
            short = {
                one.name: self._begin(one)
                for one in service.accelerators
                if any(
                    replica.accelerator == one.name and self._has_lost_its_node(replica, memory)
                    for replica in service.replicas
                )
            }
        return short

    def _look(
        self, service: ServiceInputs, accelerator: AcceleratorInputs, memory: ServiceMemory
    ) -> Shortage | None:
        known = memory.short.get(accelerator.name)
        proof = self._newest_proof(service, accelerator)
        if known is None or not 0 <= self._now - known.since < self._retry_seconds:
            return None if proof is None else self._begin(accelerator)
        if proof is not None and proof > known.since:
            return self._begin(accelerator)  # what was freed is not there, either
        free = self._num_free(accelerator)
        fewest = free if known.fewest_free is None else min(known.fewest_free, free)
        return Shortage(since=known.since, fewest_free=fewest, num_freed=free - fewest)

    def _begin(self, accelerator: AcceleratorInputs) -> Shortage:
        return Shortage(since=self._now, fewest_free=self._num_free(accelerator))

    def _num_free(self, accelerator: AcceleratorInputs) -> int:
        """Below 0 where nodes are not known: only changes count."""
        return sum(self._free[product] for product in accelerator.products)

    def _newest_proof(self, service: ServiceInputs, accelerator: AcceleratorInputs) -> float | None:
        """When a replica that was asked for had waited too long, the last one of those that have.

        One beside those, of a rollout, finds no room yet.
        """
        there = [one for one in service.replicas if is_there(one, accelerator.name)]
        waiting = sorted(one.waiting_since for one in there if one.waiting_since is not None)
        num_beside = max(len(there) - service.ordered.get(accelerator.name, 0), 0)
        proofs = [
            since + accelerator.provision_timeout_seconds
            for since in waiting[: max(len(waiting) - num_beside, 0)]
        ]
        return max((at for at in proofs if at <= self._now), default=None)

    def _has_lost_its_node(self, replica: Replica, memory: ServiceMemory) -> bool:
        """Whether one waits in the place of another: nothing was ordered, so its node is gone.

        What was ordered just now gets provisionTimeout: where nodes are made, they take a while.
        """
        since, added = replica.waiting_since, memory.added_at
        return (
            since is not None
            and not replica.is_ending
            and self._now - since >= _GONE_SECONDS
            and bool(memory.samples)
            and (added is None or since - added >= _GONE_SECONDS)
        )


def _is_deserted(service: ServiceInputs) -> bool:
    """Whether somebody waits, and no replica serves or has a node to start on."""
    return any(one.num_waiting for one in service.gateways) and not any(
        one.is_scheduled and not (one.is_ending or one.is_failing) for one in service.replicas
    )
