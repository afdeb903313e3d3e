"""Deciding all services together: every few seconds, from what is heard and remembered.

    inputs ──► demand ──► offers ──► rates that are planned for ──► rules ──► decision
                 ▲  │       ▲                   ▲                               │
                 │  ▼       │                   │                               │
               memory ──────┴───────────────────┘ ◄─────────────────────────────┘

Services are decided one after another, the most important first, so that GPUs that several of them
may have go to those.
"""

import logging
import math
from dataclasses import replace

from quire_operator.scaling.case import Case, Step
from quire_operator.scaling.clamping import Limit, Limits, consistent
from quire_operator.scaling.decision import (
    Decision,
    Finding,
    ScalingMemory,
    ServiceDecision,
    ServiceMemory,
)
from quire_operator.scaling.demand import Bucket, buckets, estimate, note_part, remember, sustained
from quire_operator.scaling.fleet import Fleet, see_fleet
from quire_operator.scaling.hearing import Heard, hear, measure_pressure
from quire_operator.scaling.inputs import ScalingInputs, ServiceInputs
from quire_operator.scaling.keeping import correct, keep_shares, rejuvenate
from quire_operator.scaling.mix import Room
from quire_operator.scaling.offers import Offers, capabilities, make_offers
from quire_operator.scaling.reporting import report
from quire_operator.scaling.rooms import Rooms
from quire_operator.scaling.service import decide_step
from quire_operator.scaling.shortages import Shortages
from quire_operator.scaling.sizing import Sizing, chance_factor
from quire_operator.scaling.soundness import keep_sound
from quire_operator.scaling.urgency import judge, occupy

_log = logging.getLogger(__name__)

_BARELY = 1e-9
"""Requests per second."""


def decide(inputs: ScalingInputs, memory: ScalingMemory) -> tuple[Decision, ScalingMemory]:
    """Decide all services. One that cannot be decided stays as it is, and the others are decided.

    Parameters
    ----------
    memory
        What the last decision returned; an empty one after a start.
    """
    sound = [keep_sound(one) for one in inputs.services]
    nonsense = {one.key: tuple(findings) for one, findings in sound}
    inputs = replace(inputs, services=tuple(one for one, _ in sound))
    memories = {
        one.key: rejuvenate(memory.services.get(one.key), one, inputs, memory.at)
        for one in inputs.services
    }
    shortages = Shortages(inputs)
    short = {one.key: shortages.find(one, memories[one.key]) for one in inputs.services}
    rooms = Rooms(inputs, short)
    decided: dict[str, ServiceDecision] = {}
    for service in sorted(inputs.services, key=lambda one: (-one.priority, one.key)):
        known = replace(memories[service.key], short=short[service.key])
        decision, known = _decide_or_hold(service, inputs, known, rooms)
        decision = replace(decision, findings=(*decision.findings, *nonsense[service.key]))
        decided[service.key], memories[service.key] = decision, known
        rooms.decide(service, decision.replicas)
    decisions = tuple(decided[one.key] for one in inputs.services)
    return Decision(services=decisions), ScalingMemory(services=memories, at=inputs.now)


def _decide_or_hold(
    service: ServiceInputs, inputs: ScalingInputs, memory: ServiceMemory, rooms: Rooms
) -> tuple[ServiceDecision, ServiceMemory]:
    """Decide a service; if that fails, its replicas stay as they are, and memory begins anew.

    The log is told when it fails otherwise than the last time.
    """
    try:
        decision, known = _decide_one(service, inputs, memory, rooms.of(service))
    except Exception as error:  # noqa: BLE001 - a bug must not take the other services' replicas
        failure = repr(error)
        if failure != memory.failure:
            _log.exception("%s: the decision failed: replicas stay as they are", service.key)
        anew = rejuvenate(None, service, inputs, None)
        decision = replace(
            _leave_alone(service, see_fleet(service, memory.short)),
            reason="the decision failed, and the replicas stay as they are",
            findings=(Finding(code="DecisionFailed", message=failure[:256]),),
            are_metrics_fresh=False,
        )
        return decision, replace(anew, short=memory.short, failure=failure)
    return decision, replace(known, failure="")


def _decide_one(
    service: ServiceInputs,
    inputs: ScalingInputs,
    memory: ServiceMemory,
    rooms: tuple[Room, ...],
) -> tuple[ServiceDecision, ServiceMemory]:
    heard = hear(service, memory.unheard_since, inputs)
    memory = replace(memory, unheard_since=heard.unheard_since)
    fleet = see_fleet(service, memory.short, heard.silent)
    if service.is_suspended or service.mode == "External":
        return _leave_alone(service, fleet), memory
    case, memory = _make_case(service, inputs, memory, heard, fleet, rooms)
    step = decide_step(case)
    is_rising = step.action == "Up" or "stabilization.up" in step.reason
    is_adding = any(count > fleet.ordered[name] for name, count in step.replicas.items())
    memory = replace(
        memory,
        added_at=inputs.now if is_adding else memory.added_at,
        rising_since=(memory.rising_since or inputs.now) if is_rising else None,
        pressed_since=case.urgency.pressed_since,
        better_since=(memory.better_since or inputs.now) if step.is_better_known else None,
    )
    if not fleet.num_ordered and not any(step.replicas.values()):
        # nothing may be begun with: what was short is tried again, as soon as it is needed
        is_needed = case.is_asked or service.min_replicas > 0
        memory = replace(memory, short={} if is_needed else memory.short)
    memory = correct(case, memory)
    memory = keep_shares(case, memory)
    decision = report(case, memory, step)
    if service.mode == "Recommend":
        decision = _only_recommend(decision, fleet, step)
    return decision, memory


def _make_case(
    service: ServiceInputs,
    inputs: ScalingInputs,
    memory: ServiceMemory,
    heard: Heard,
    fleet: Fleet,
    rooms: tuple[Room, ...],
) -> tuple[Case, ServiceMemory]:
    now = inputs.now
    measured, findings = capabilities(service, memory.capabilities)
    memory = replace(memory, capabilities=measured)
    if not heard.is_any:
        memory = replace(memory, since=now)  # a window with a hole in it says nothing of its peak
    memory = remember(service, heard.gateways, memory, now) if heard.is_any else memory
    demand = estimate(memory, now) if heard.is_any else None
    made_of: tuple[float, ...] = ()
    mix: tuple[Bucket, ...] = ()
    prompt_bounds = heard.gateways[0].prompt_bounds if demand else ()
    if demand is not None:
        made_of = tuple(map(max, demand.prompt_rates, sustained(memory, demand, prompt_bounds)))
        mix = buckets(memory, made_of, (prompt_bounds, heard.gateways[0].output_bounds))
    seconds = demand.window_seconds if demand else math.inf
    offers = make_offers(service, measured, mix, seconds)
    limits = _limits(service, offers, fleet, rooms)
    residence = offers.residence_seconds(fleet.useful)
    factor = chance_factor(service, demand, residence, memory.correction) if demand else 1.0
    able = {
        one.accelerator.name: one.capacity.requests_per_second
        for one in offers.offers
        if one.capacity
    }
    pressure = measure_pressure(service, heard, able)
    memory = occupy(memory, pressure, now)
    urgency = judge(
        service,
        heard,
        pressure,
        demand,
        memory,
        planned_rate=demand.rate * demand.certain * factor if demand else 0.0,
        able_rate=sum(count * able.get(name, 0.0) for name, count in fleet.ready.items()),
        is_coming=fleet.num_useful > fleet.num_ready,
        now=now,
    )
    if demand is not None:
        times = urgency.times * demand.certain
        rates = tuple(times * rate for rate in demand.prompt_rates)
        planned = replace(demand, rate=times * demand.rate, prompt_rates=rates)
        memory = note_part(memory, demand, urgency.times, service.down_seconds, now)
        rates_now = _plan_for(offers, made_of, rates, factor)
        rates_at_peak = _plan_for(
            offers, made_of, sustained(memory, planned, prompt_bounds), factor
        )
    else:
        carried = pressure.requests_per_second if pressure and urgency.is_urgent else 0.0
        rates_now = rates_at_peak = [max(carried, _BARELY)] * len(offers.mix)
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


def _plan_for(
    offers: Offers, made_of: tuple[float, ...], rates: tuple[float, ...], factor: float
) -> list[float]:
    """Rates that are planned for, by bucket: never nothing at all, for each must be served.

    Parameters
    ----------
    made_of
        Rates by prompt bucket that the buckets' own were made of.
    rates
        What is asked, by prompt bucket.
    """
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
        made.append(Limit(name=one.name, cost=offers.costs[one.name], lowest=lowest, highest=most))
    may_be_none = service.min_replicas == 0 and fleet.num_ordered == 0
    return consistent(
        made,
        fewest=0 if may_be_none else max(service.min_replicas, 1),
        most=service.max_replicas,
        most_cost=service.max_cost_per_hour,
        rooms=rooms,
    )


def _leave_alone(service: ServiceInputs, fleet: Fleet) -> ServiceDecision:
    replicas = dict.fromkeys(fleet.ordered, 0) if service.is_suspended else dict(fleet.ordered)
    reason = "spec.suspend is true" if service.is_suspended else "scaling.mode is External"
    return ServiceDecision(
        key=service.key, action="Hold", replicas=replicas, wanted=replicas, reason=reason
    )


def _only_recommend(decision: ServiceDecision, fleet: Fleet, step: Step) -> ServiceDecision:
    """Say what would be done, and do nothing."""
    would = "would hold" if step.action == "Hold" else f"would take the step {step.action}"
    return replace(
        decision,
        action="Hold",
        replicas=dict(fleet.ordered),
        victims=(),
        reason=f"scaling.mode is Recommend; Auto {would}: {decision.reason}",
    )
