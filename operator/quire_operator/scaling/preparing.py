"""From what is heard and remembered of one service to the case that its rules decide.

heard ──► demand ──► offers ──► limits
             │          │
             │          ├──► pressure ──► urgency
             ▼          ▼                    │
           rates that are planned for ◄──────┘
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from quire_operator.scaling.answers import Bucket, buckets, note_lengths
from quire_operator.scaling.case import Case
from quire_operator.scaling.clamping import Limit, Limits, consistent, spare
from quire_operator.scaling.decision import ServiceMemory
from quire_operator.scaling.demand import Demand, estimate, note_part, remember, sustained
from quire_operator.scaling.fleet import Fleet
from quire_operator.scaling.hearing import FleetPressure, Heard, measure_pressure
from quire_operator.scaling.inputs import ServiceInputs
from quire_operator.scaling.measured import capabilities
from quire_operator.scaling.mix import Room
from quire_operator.scaling.offers import Offers, make_offers
from quire_operator.scaling.sizing import Sizing, chance_factor
from quire_operator.scaling.urgency import Urgency, judge, occupy

_BARELY = 1e-9
"""Requests per second."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What there is to know of a service, besides memory."""

    service: ServiceInputs
    now: float
    heard: Heard
    fleet: Fleet
    rooms: tuple[Room, ...]
    is_between: bool = False
    """Whether nothing was counted since the last decision: it is made for a changed spec."""


def prepare(seen: Seen, memory: ServiceMemory) -> tuple[Case, ServiceMemory]:
    """Compute what the rules decide by."""
    service, heard, fleet, now = seen.service, seen.heard, seen.fleet, seen.now
    measured, findings = capabilities(service, memory.capabilities)
    memory = _count(seen, replace(memory, capabilities=measured))
    asked = _ask(heard, memory, now)
    demand = asked.demand
    offers = make_offers(service, measured, asked.mix, asked.window_seconds)
    limits = _limits(service, offers, fleet, seen.rooms)
    residence = offers.residence_seconds(fleet.useful)
    factor = chance_factor(service, demand, residence, memory.correction) if demand else 1.0
    able = offers.able
    done = _done(asked, offers)
    pressure = measure_pressure(service, heard, done)
    memory = occupy(memory, pressure, done, fleet.ready, now)
    urgency = judge(
        service,
        heard,
        pressure,
        demand,
        memory,
        planned_rate=demand.rate * demand.certain * factor if demand else 0.0,
        able_rate=sum(count * done[name] for name, count in fleet.ready.items() if name in able),
        is_coming=fleet.num_useful > fleet.num_ready,
        now=now,
    )
    if demand is not None:
        memory = note_part(memory, demand, urgency.times, service.down_seconds, now)
    rates_now, rates_at_peak = _plan(asked, memory, offers, (pressure, urgency), factor)
    case = Case(
        service=service,
        now=now,
        memory=memory,
        heard=heard,
        fleet=fleet,
        limits=limits,
        offers=offers,
        demand=demand,
        pressure=pressure,
        urgency=urgency,
        sizing=Sizing(service=service, offers=offers, fleet=fleet, limits=limits),
        rates_now=rates_now,
        rates_at_peak=rates_at_peak,
        findings=[*findings, *offers.findings, *limits.findings],
    )
    return case, memory


def _count(seen: Seen, memory: ServiceMemory) -> ServiceMemory:
    if not seen.heard.is_any:
        return replace(memory, since=seen.now)  # a window with a hole says nothing of its peak
    if seen.is_between:
        return memory
    memory = remember(seen.service, seen.heard.gateways, memory, seen.now)
    first = seen.heard.gateways[0]
    return note_lengths(memory, (first.prompt_bounds, first.output_bounds))


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What is asked, and of which lengths."""

    demand: Demand | None = None
    prompt_bounds: tuple[int, ...] = ()
    made_of: tuple[float, ...] = ()
    """Rates by prompt bucket that the buckets' own were made of."""
    mix: tuple[Bucket, ...] = ()

    @property
    def window_seconds(self) -> float:
        """Over which it was counted."""
        return self.demand.window_seconds if self.demand else math.inf


def _ask(heard: Heard, memory: ServiceMemory, now: float) -> _Asked:
    demand = estimate(memory, now) if heard.is_any else None
    if demand is None:
        return _Asked()
    bounds = heard.gateways[0].prompt_bounds, heard.gateways[0].output_bounds
    made_of = tuple(map(max, demand.prompt_rates, sustained(memory, demand, bounds[0])))
    mix = buckets(memory, made_of, bounds)
    return _Asked(demand=demand, prompt_bounds=bounds[0], made_of=made_of, mix=mix)


def _plan(
    asked: _Asked,
    memory: ServiceMemory,
    offers: Offers,
    load: tuple[FleetPressure | None, Urgency],
    factor: float,
) -> tuple[list[float], list[float]]:
    """Rates that are planned for, by bucket: now, and at the peak of the stabilization window."""
    demand, (pressure, urgency) = asked.demand, load
    if demand is None:
        carried = pressure.requests_per_second if pressure and urgency.is_urgent else 0.0
        rates = [max(carried, _BARELY)] * len(offers.mix)
        return rates, rates
    times = urgency.times * demand.certain
    now = tuple(times * rate for rate in demand.prompt_rates)
    planned = replace(demand, rate=times * demand.rate, prompt_rates=now)
    peak = sustained(memory, planned, asked.prompt_bounds)
    return (
        _plan_for(offers, asked.made_of, now, factor),
        _plan_for(offers, asked.made_of, peak, factor),
    )


def _done(asked: _Asked, offers: Offers) -> dict[str, float]:
    """Requests a second, as they come now, that one replica of each accelerator does."""
    if asked.demand is None:
        return offers.able
    return offers.done_of(_plan_for(offers, asked.made_of, asked.demand.prompt_rates, 1.0))


def _plan_for(
    offers: Offers, made_of: Sequence[float], rates: Sequence[float], factor: float
) -> list[float]:
    """Rates by bucket of rates by prompt: never nothing at all, for each must be served."""
    planned = []
    for one in offers.mix:
        whole = made_of[one.row] if one.row < len(made_of) else 0.0
        part = rates[one.row] / whole if whole > 0 and one.row < len(rates) else 0.0
        planned.append(max(one.rate * part * factor, _BARELY))
    return planned


def _limits(
    service: ServiceInputs, offers: Offers, fleet: Fleet, rooms: tuple[Room, ...]
) -> Limits:
    made = []
    for one in service.accelerators:
        lowest, most = one.min_replicas, one.max_replicas
        if one.unusable_because:
            lowest = 0
        if offers.find(one.name) is None:  # no more of what cannot serve than there is
            most = min(most, max(lowest, fleet.ordered[one.name]))
        made.append(
            Limit(
                name=one.name,
                cost=offers.costs[one.name],
                lowest=lowest,
                highest=most,
                is_doubtful=one.name in fleet.doubtful,
            )
        )
    may_be_none = service.min_replicas == 0 and fleet.num_ordered == 0
    limits = consistent(
        made,
        fewest=0 if may_be_none else max(service.min_replicas, 1),
        most=service.max_replicas,
        most_cost=service.max_cost_per_hour,
        rooms=rooms,
    )
    return spare(limits, fleet.counted_on)
