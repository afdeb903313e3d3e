"""What each accelerator of a service can do of its traffic: measured, or expected until it was.

Where no accelerator keeps a promise, the best there is takes its place, and that is said.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np

from quire_operator.scaling.answers import Bucket
from quire_operator.scaling.capacity import Capacity, Incapable, capacity, milliseconds
from quire_operator.scaling.decision import Finding
from quire_operator.scaling.inputs import (
    AcceleratorInputs,
    Capability,
    ServiceInputs,
    ServiceLevel,
)
from quire_operator.scaling.lengths import Array
from quire_operator.scaling.loads import Load, Loads

TYPICAL = (Bucket(prompt_tokens=1000.0, output_tokens=200.0, prefill_tokens=1000.0, rate=1e-6),)
"""What is planned for while nothing was asked yet."""
_TOLERATED = 0.2
"""Part of the requests that may miss the promise, that may do so for the length of their prompt."""
_DOUBT = 2.0
"""Standard deviations that a count may be above what is usual."""
_RELAXED = 1.25
"""Of the time that the fastest takes for one request alone: what is aimed at instead."""
_MOST_KEPT = 512
_ALMOST_NOTHING = Load(memory=1e-6, time=1e-6)


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One accelerator that may be used."""

    accelerator: AcceleratorInputs
    cost: float
    """Of a replica an hour, assumed where the price is not known."""
    loads: Loads
    """See `Option`."""
    capacity: Capacity | None
    """None: nothing is known of it."""

    @property
    def quick_loads(self) -> Loads:
        """See `Capacity`; where all is quick what it takes besides is, too."""
        if self.capacity is None or self.capacity.find_quick is None:
            return self.loads
        return self.capacity.quick_loads


@dataclass(frozen=True, kw_only=True)
class Offers:
    """All of a service."""

    offers: tuple[Offer, ...]
    mix: tuple[Bucket, ...]
    """The buckets that loads are of."""
    costs: Mapping[str, float]
    """Of a replica an hour, of all accelerators, assumed where the price is not known."""
    findings: tuple[Finding, ...]
    late: Mapping[str, Loads] = field(default_factory=dict)
    """The same of accelerators that run and keep no promise: what is taken of them stands for few.
    """

    @cached_property
    def nothing(self) -> Loads:
        """Of what cannot be used."""
        return Loads.none(len(self.mix))

    @cached_property
    def loads(self) -> Mapping[str, Loads]:
        """Of what each can serve, by accelerator."""
        return {one.accelerator.name: one.loads for one in self.offers}

    @cached_property
    def quick_loads(self) -> Mapping[str, Loads]:
        """The same of what is quick on each; computed when it is looked up."""
        return _QuickLoads({one.accelerator.name: one for one in self.offers})

    @property
    def are_known(self) -> bool:
        """Whether it is known of any what it can do."""
        return any(one.capacity is not None for one in self.offers)

    @property
    def able(self) -> dict[str, float]:
        """Requests per second of one replica at the target, by accelerator, where it is known."""
        return {
            one.accelerator.name: one.capacity.requests_per_second
            for one in self.offers
            if one.capacity
        }

    def done_of(self, rates: Sequence[float]) -> dict[str, float]:
        """Requests per second of one replica at the target if they come in these proportions.

        Of the buckets that it can serve, late ones included: `able` is of the mix, in which is
        also what comes no more.
        """
        loads = {one.accelerator.name: one.loads for one in self.offers if one.capacity}
        asked = np.array(rates)
        return {
            name: _requests_per_second(one, asked)
            for name, one in (loads | dict(self.late)).items()
        }

    def find(self, name: str) -> Offer | None:
        """Return one by its accelerator's name; None: it cannot be used."""
        return next((one for one in self.offers if one.accelerator.name == name), None)

    def residence_seconds(self, counts: Mapping[str, int]) -> float:
        """How long a request runs on these replicas, or else where it is cheapest.

        0 where nothing is known.
        """
        known = [(one, what) for one in self.offers if (what := one.capacity)]
        there = [(counts.get(one.accelerator.name, 0), what) for one, what in known]
        if not any(count for count, _ in there):
            cheapest = sorted(known, key=lambda pair: pair[0].cost / pair[1].requests_per_second)
            there = [(1, what) for _, what in cheapest[:1]]
        rate = sum(count * what.requests_per_second for count, what in there)
        return sum(count * what.concurrency for count, what in there) / rate if rate else 0.0


class _QuickLoads(Mapping[str, Loads]):
    def __init__(self, offers: Mapping[str, Offer]) -> None:
        self._offers = offers

    def __getitem__(self, name: str) -> Loads:
        return self._offers[name].quick_loads

    def __iter__(self) -> Iterator[str]:
        return iter(self._offers)

    def __len__(self) -> int:
        return len(self._offers)


def _requests_per_second(loads: Loads, rates: Array) -> float:
    served = loads.are_served
    asked = rates[served]
    taken = max(float(loads.memory[served] @ asked), float(loads.time[served] @ asked))
    return float(asked.sum()) / taken if taken > 0 else 0.0


def make_offers(
    service: ServiceInputs,
    measured: Mapping[str, Capability],
    mix: Sequence[Bucket],
    counted_seconds: float = math.inf,
) -> Offers:
    """Compute what each accelerator does of a mix.

    Parameters
    ----------
    counted_seconds
        For how long requests were counted: a few of a kind may be chance.
    """
    findings: list[Finding] = []
    usable = [one for one in service.accelerators if not one.unusable_because]
    mix = tuple(mix) or TYPICAL
    known = {
        one.name: known
        for one in usable
        if (known := measured.get(one.name) or one.expected) is not None
    }
    done = {one.name: _do(one, known.get(one.name), mix, service.slo, service) for one in usable}
    slo = service.slo
    if known and not any(isinstance(one, Capacity) for one in done.values()):
        slo, finding = _relax(service, done)
        findings.append(finding)
        done = {one.name: _do(one, known.get(one.name), mix, slo, service) for one in usable}
    costs = _costs(service, findings)
    offers = []
    for one in usable:
        what = done[one.name]
        if isinstance(what, Capacity):
            loads = what.loads
        elif what is None and not known:
            loads = Loads.alike(_ALMOST_NOTHING, len(mix))
        else:
            continue
        offers.append(
            Offer(
                accelerator=one,
                cost=costs[one.name],
                loads=loads,
                capacity=what if isinstance(what, Capacity) else None,
            )
        )
    if usable and not known:
        findings.append(
            Finding(
                code="CapacityUnknown",
                message="nothing is known of what a replica can do until one has run",
            )
        )
    offers = [_tolerate(service, one, known, mix, slo, counted_seconds) for one in offers]
    offers = _serve_hardest(service, offers, known, mix, slo, findings)
    return Offers(
        offers=tuple(offers),
        mix=mix,
        costs=costs,
        findings=tuple(findings),
        late=_do_late(service, known, done, mix),
    )


def _do_late(
    service: ServiceInputs,
    known: Mapping[str, Capability],
    done: Mapping[str, Capacity | Incapable | None],
    mix: Sequence[Bucket],
) -> dict[str, Loads]:
    """What requests take of accelerators that keep no promise, of those that have replicas."""
    there = {one.accelerator for one in service.replicas if one.is_ready}
    late = {
        one.name: _do(one, known[one.name], mix, ServiceLevel(), service)
        for one in service.accelerators
        if one.name in there and isinstance(done.get(one.name), Incapable)
    }
    return {name: what.loads for name, what in late.items() if isinstance(what, Capacity)}


def _do(
    accelerator: AcceleratorInputs,
    capability: Capability | None,
    mix: Sequence[Bucket],
    slo: ServiceLevel,
    service: ServiceInputs,
) -> Capacity | Incapable | None:
    if capability is None:
        return None
    edges = service.pressure.target, service.pressure.admission
    if mix is TYPICAL:
        return _capacity_for_typical(capability, accelerator.expected, slo, *edges)
    return capacity(capability, accelerator.expected, mix, slo, *edges)


@lru_cache(maxsize=_MOST_KEPT)
def _capacity_for_typical(
    capability: Capability,
    expected: Capability | None,
    slo: ServiceLevel,
    target: float,
    admission: float,
) -> Capacity | Incapable:
    """Of a service that nobody asks: hundreds of them are alike, and stay so."""
    return capacity(capability, expected, TYPICAL, slo, target, admission)


def _relax(
    service: ServiceInputs, done: Mapping[str, Capacity | Incapable | None]
) -> tuple[ServiceLevel, Finding]:
    """The best promises that can be kept."""
    slo = service.slo
    tried = {name: one for name, one in done.items() if isinstance(one, Incapable)}
    best = min(tried, key=lambda name: tried[name].alone_seconds)
    alone = tried[best].alone_seconds
    reason = "; ".join(f"{name}: {one.reason}" for name, one in tried.items())
    if slo.per_token_seconds is not None and alone > slo.per_token_seconds:
        per_token = _RELAXED * alone
        words = f"{best} is the fastest, and {milliseconds(per_token)} a token is aimed at"
        slo = replace(slo, per_token_seconds=per_token)
    else:
        words = "the time of the first token is left out of account"
        slo = replace(slo, first_token_seconds=None)
    return slo, Finding(
        code="SloImpossible", message=f"no accelerator meets the SLO ({reason}): {words}"
    )


def _tolerate(
    service: ServiceInputs,
    offer: Offer,
    known: Mapping[str, Capability],
    mix: Sequence[Bucket],
    slo: ServiceLevel,
    counted_seconds: float,
) -> Offer:
    """Let an accelerator take what it serves too late, as long as there is hardly any of it.

    A promise is of a part of the requests: a handful of prompts that are too long for all the
    others' accelerator does not pay for another one.
    """
    is_late = ~offer.loads.are_served
    if offer.capacity is None or not is_late.any():
        return offer
    total = sum(one.rate for one in mix)
    allowed = _TOLERATED * (1.0 - slo.percentile / 100)
    part = sum(mix[at].rate for at in np.flatnonzero(is_late).tolist())
    doubt = _DOUBT * math.sqrt(part / counted_seconds)
    if part - doubt > allowed * total:
        return offer
    name = offer.accelerator.name
    without = _do(
        offer.accelerator, known[name], mix, replace(slo, first_token_seconds=None), service
    )
    if not isinstance(without, Capacity):
        return offer
    return replace(offer, loads=offer.loads.filled(is_late, without.loads))


def _serve_hardest(
    service: ServiceInputs,
    offers: list[Offer],
    known: Mapping[str, Capability],
    mix: Sequence[Bucket],
    slo: ServiceLevel,
    findings: list[Finding],
) -> list[Offer]:
    """Requests whose first token comes in time nowhere go where prompts are computed fastest."""
    fitting = [one for one in offers if one.capacity is not None]
    if not fitting:
        return offers
    is_hard = ~np.any([one.loads.are_served for one in offers], axis=0)
    if not is_hard.any():
        return offers
    best = max(
        fitting, key=lambda one: one.capacity.prompt_tokens_per_second if one.capacity else 0
    )
    free = replace(slo, first_token_seconds=None)
    name = best.accelerator.name
    without = _do(best.accelerator, known[name], mix, free, service)
    if not isinstance(without, Capacity):
        return offers
    loads = best.loads.filled(is_hard, without.loads)
    served = np.flatnonzero(is_hard & loads.are_served).tolist()
    if served and slo.first_token_seconds is not None:
        shortest = min(mix[at].prompt_tokens for at in served)
        findings.append(
            Finding(
                code="SloImpossible",
                message=f"prompts of about {shortest:.0f} tokens and more get no first token within"
                f" {slo.first_token_seconds:g} s on any accelerator: {name} is the fastest",
            )
        )
    return [replace(one, loads=loads) if one is best else one for one in offers]


def _costs(service: ServiceInputs, findings: list[Finding]) -> dict[str, float]:
    """Prices; one that is not known is taken to be the dearest that is of those that may be used.

    What can serve nobody has a price, too: it may run, and is paid for.
    """
    known = {
        one.name: one.cost_per_hour
        for one in service.accelerators
        if one.cost_per_hour is not None
        and math.isfinite(one.cost_per_hour)
        and one.cost_per_hour >= 0
    }
    usable = [one.name for one in service.accelerators if not one.unusable_because]
    missing = [name for name in usable if name not in known]
    assumed = max((known[name] for name in usable if name in known), default=1.0)
    if missing and (any(name in known for name in usable) or service.max_cost_per_hour is not None):
        findings.append(
            Finding(
                code="PriceUnknown",
                message=f"{', '.join(missing)} has no costPerHour: {assumed:g} is assumed",
            )
        )
    return {one.name: known.get(one.name, assumed) for one in service.accelerators}
