"""Replicas of accelerators that the spec has no more: they serve until others do in their place.

Scaling plans as if they were gone already, so that what is left of the spec grows to all of the
load; meanwhile they stay. They are no part of any bound: neither how many they may be nor what they
cost is in the spec any more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from quire_operator.scaling.case import Case, Step
from quire_operator.scaling.decision import ServiceDecision
from quire_operator.scaling.fleet import serves
from quire_operator.scaling.inputs import Replica
from quire_operator.scaling.victims import choose_victims

_WATCHED_SECONDS = 30.0
"""Before, a memory that is new knows too little of the load to say that others carry it."""


@dataclass(frozen=True)
class _Staying:
    """How many stay of which, and why the others go."""

    replicas: Mapping[str, int]
    why: str = ""


def see_off(case: Case, step: Step, decision: ServiceDecision) -> ServiceDecision:
    """Add to a decision what stays of them, and drain what does not."""
    if not case.service.leaving:
        return decision
    staying = _staying(case, step)
    before = {one.name: one.replicas for one in case.service.leaving}
    gone = [name for name, count in before.items() if count > staying.replicas.get(name, 0)]
    if not gone:
        return replace(decision, leaving=before)
    reason = f"{' and '.join(gone)} left the spec, {staying.why}"
    return replace(
        decision,
        leaving=staying.replicas,
        victims=(
            *decision.victims,
            *choose_victims(case.service.replicas, before, staying.replicas),
        ),
        action=decision.action if decision.is_change else "Limit",
        reason=f"{decision.reason}; {reason}" if decision.is_change else reason,
    )


def _staying(case: Case, step: Step) -> _Staying:
    if step.action == "Zero":
        return _Staying({}, "and nobody asks")
    if _are_replaced(case, step):
        return _Staying({}, "and others serve in its place")
    serving = {
        one.name: min(
            one.replicas,
            sum(
                _may_serve(other) and other.accelerator == one.name
                for other in case.service.replicas
            ),
        )
        for one in case.service.leaving
    }
    if any(serving[one.name] < one.replicas for one in case.service.leaving):
        return _Staying(serving, "and these serve nobody")
    return _make_room(case, step, serving)


def _may_serve(replica: Replica) -> bool:
    """Whether it takes requests, as far as is known: all nodes may be missed for a moment."""
    return serves(replica) or (replica.is_missed and not replica.is_ending)


def _are_replaced(case: Case, step: Step) -> bool:
    """Whether all that is to come is ready, or what is ready is enough."""
    fleet = case.fleet
    watched = case.now - case.memory.since
    if case.demand is None or watched < min(case.service.down_seconds, _WATCHED_SECONDS):
        return False
    if not fleet.num_ready or step.is_rising:
        return False
    if step.replicas == fleet.ready:
        return True
    return (
        not case.why_not_down()
        and fleet.num_ready >= case.limits.bounds.fewest
        and case.sizing.is_enough(fleet.ready, case.rates_now)
    )


def _make_room(case: Case, step: Step, serving: dict[str, int]) -> _Staying:
    """Where what is to come waits for the very GPUs that they have: one after another.

    So that one fewer serves than should, and no fewer; and never the last one that serves: what is
    ordered may wait for something else than GPUs.
    """
    short = case.memory.short.keys()
    wanted = {
        product
        for one in case.service.accelerators
        if one.name in short
        for product in one.products
    }
    num_ready = case.fleet.num_ready
    least = max(sum(step.replicas.values()) - num_ready - 1, 0 if num_ready else 1)
    spare = sum(serving.values()) - least
    kept = dict(serving)
    for one in case.service.leaving:
        if wanted & set(one.products):
            fewer = max(min(kept[one.name], spare), 0)
            kept[one.name] -= fewer
            spare -= fewer
    return _Staying(kept, "and what takes its place finds no other GPU")
