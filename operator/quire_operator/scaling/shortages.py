"""Which accelerators found no node in time, what was freed since, and when that is forgotten.

found      a replica has waited for longer than provisionTimeout; or it lost its node, nothing
           else serves, and somebody waits
freed      there are more GPUs that our replicas do not have than at any time since: as many may
           be used at once. What other people's pods give back is not seen
retried    after a while, which is twice as long each time that it was in vain: what is made ready
           for a mix that does not become whole is paid for nothing
forgotten  how often that was: when another service gives some back, a node is added, more get a
           node than had one, or the spec asks otherwise; where nothing runs, or more is needed and
           nothing else has room, it is tried as soon as after the first time: `decide` sees to that
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from quire_operator.scaling.decision import ServiceMemory, Shortage
from quire_operator.scaling.fleet import is_there, num_scheduled
from quire_operator.scaling.inputs import AcceleratorInputs, Replica, ScalingInputs, ServiceInputs
from quire_operator.scaling.retrying import LONGEST_SECONDS, pause

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
        """Accelerators that are or were short: those until `until` limit what is asked for.

        What gets a node meanwhile counts at once, for the limit is what has one.
        """
        if service.is_suspended:
            return {}
        known = {**memory.retried, **memory.short}
        found = {
            one.name: self._look(service, one, known.get(one.name)) for one in service.accelerators
        }
        short = {name: one for name, one in found.items() if one is not None}
        if not self.limiting(short) and _is_deserted(service):
            short |= {
                one.name: self._begin(service, one, short.get(one.name), is_new=True)
                for one in service.accelerators
                if any(
                    replica.accelerator == one.name and self._has_lost_its_node(replica, memory)
                    for replica in service.replicas
                )
            }
        return short

    def limiting(self, found: Mapping[str, Shortage]) -> dict[str, Shortage]:
        """Those of these that are short now."""
        return {name: one for name, one in found.items() if self._now < one.until}

    def _look(
        self, service: ServiceInputs, accelerator: AcceleratorInputs, known: Shortage | None
    ) -> Shortage | None:
        proof = self._newest_proof(service, accelerator)
        if known is not None:
            known = self._review(service, accelerator, known)
        if known is None:
            return None if proof is None else self._begin(service, accelerator, None, is_new=True)
        is_over, is_new = self._now >= known.until, proof is not None and proof > known.since
        if is_new or (is_over and proof is not None):
            # before its time it is of the same try: what was freed is not there, either
            return self._begin(service, accelerator, known, is_new=is_over and is_new)
        free = self._num_free(accelerator)
        fewest = free if known.fewest_free is None else min(known.fewest_free, free)
        return replace(known, fewest_free=fewest, num_freed=free - fewest)

    def _review(
        self, service: ServiceInputs, accelerator: AcceleratorInputs, known: Shortage
    ) -> Shortage | None:
        """What is remembered, with what has come since; None: it says nothing any more."""
        if known.since > self._now or self._now - known.until >= LONGEST_SECONDS:
            return None
        num_had = num_scheduled(service, accelerator.name)
        if self._now >= known.until and num_had > known.num_had:
            return None
        reach, found_with = self._reach(service, accelerator), _asked(accelerator)
        known = replace(
            known,
            found_with=known.found_with or found_with,
            reach=reach if known.reach is None else known.reach,
            num_had=max(known.num_had, num_had),
        )
        if known.found_with == found_with and (known.reach is None or reach <= known.reach):
            return known
        until = min(known.until, known.since + self._retry_seconds)
        return replace(known, num_tries=0, until=until, found_with=found_with, reach=reach)

    def _begin(
        self,
        service: ServiceInputs,
        accelerator: AcceleratorInputs,
        known: Shortage | None,
        *,
        is_new: bool,
    ) -> Shortage:
        num_tries = (known.num_tries if known else 0) + is_new
        return Shortage(
            since=self._now,
            until=self._now + pause(self._retry_seconds, num_tries),
            num_tries=num_tries,
            found_with=_asked(accelerator),
            num_had=num_scheduled(service, accelerator.name),
            reach=self._reach(service, accelerator),
            fewest_free=self._num_free(accelerator),
        )

    def _reach(self, service: ServiceInputs, accelerator: AcceleratorInputs) -> int:
        """GPUs of its products that no other service has: those of this one come and go."""
        taken = {one.name: one for one in service.accelerators if one.products}
        own = sum(
            taken[one.accelerator].gpus_per_replica
            for one in service.replicas
            if one.is_scheduled
            and one.accelerator in taken
            and taken[one.accelerator].products[0] in accelerator.products
        )
        return self._num_free(accelerator) + own

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


def _asked(accelerator: AcceleratorInputs) -> tuple[str, float]:
    return accelerator.made_of, accelerator.provision_timeout_seconds


def recorded(since: float, inputs: ScalingInputs) -> Shortage:
    """One that the status tells of: how often it was found is lost."""
    return Shortage(since=since, until=since + inputs.retry_accelerator_seconds)


def pardon(short: Mapping[str, Shortage], now: float, after_seconds: float) -> dict[str, Shortage]:
    """Let those be tried that were found so long ago, however often that was in vain."""
    return {
        name: replace(one, until=min(one.until, now)) if now - one.since >= after_seconds else one
        for name, one in short.items()
    }


def set_back(short: Mapping[str, Shortage], now: float) -> dict[str, Shortage]:
    """The same where the clock was set back."""
    return {
        name: replace(
            one,
            since=min(one.since, now),
            until=min(one.until, min(one.since, now) + one.until - one.since),
        )
        for name, one in short.items()
    }
