"""Deciding one service, in the order of what comes first.

bounds of the spec      at once; what must go for others' sake, when what stands in for it serves
nothing was ever run    the first replicas
what serves has left    as many as the load needs, of what is in the spec
nothing is heard        hold
nobody asks             none, after a while; one again when somebody does
too few                 the cheapest to add; at once when requests are refused or wait too long
too many, or too dear   what takes their place first, then one after another, each only if the
                        rest would have carried the stabilization window
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from quire_operator.scaling.bounds import keep_bounds
from quire_operator.scaling.case import Case, Step
from quire_operator.scaling.fleet import serves
from quire_operator.scaling.inputs import Replica
from quire_operator.scaling.mix import Mix
from quire_operator.scaling.sizing import SLACK, window_factor
from quire_operator.scaling.standing_in import stand_in
from quire_operator.scaling.victims import next_victims

_WORTHWHILE = 0.03
"""Part of the cost that a change must save."""
_WORTH_MOVING = 0.15
"""The same where others come first: near ties would make fleets come and go."""
_START_SECONDS = 150.0
"""For so long others and those whose place they take are paid for both."""
_STAY_SECONDS = 900.0
"""So long a mix is taken to be the best."""
_BETTER_PART = 0.5
"""Of the window: so long others must have been better by its mean, which comes late itself."""
_MOVE_MARGIN = 0.1
"""So much more others must carry: they take minutes to come, and rates change meanwhile."""
_ALIKE = 0.03
"""Part of the cost: what is dearer by less is as cheap."""
_ALMOST = 0.999
"""Of what is computed: the solver's answers are not exact."""
_ANOTHER_SECONDS = 60.0
"""So long requests must be too long for all that there is, before another accelerator is bought."""
_AT_A_TIME = 4
"""So many times what goes at once there must be."""
_MUCH_BETTER = 0.01
"""Of the load: so much more must be served to be worth a gap."""


def decide_step(case: Case) -> Step:
    """Decide what is to be done of a service that scales by itself."""
    for rule in _RULES:
        step = rule(case)
        if step is not None:
            return step
    return case.hold("the replicas fit the traffic")


def _begin(case: Case) -> Step | None:
    if not case.service.is_new:
        return None
    first = max(case.service.first_replicas, case.service.min_replicas)
    sizing = case.sizing
    replicas = sizing.first(min(first, case.service.max_replicas))
    if not sum(replicas.values()):
        return None
    replicas = case.limits.clamp(replicas)
    return Step(action="Start", replicas=replicas, reason="the service is new")


def _take_over(case: Case) -> Step | None:
    """All that serves has left the spec: what comes in its place is for all of the load."""
    leaving = case.service.leaving
    if not leaving or case.fleet.num_ordered or case.demand is None:
        return None
    if case.offers.are_known:
        replicas = _grow(case, case.rates_now)
    else:
        several = sum(one.replicas for one in leaving)
        replicas = case.sizing.first(min(several, case.limits.bounds.most))
    replicas = case.limits.clamp(replicas)
    if not any(replicas.values()):
        return None
    names = " and ".join(one.name for one in leaving)
    reason = f"{names} left the spec, and serves until these do"
    return Step(action="Limit", replicas=replicas, reason=reason)


def _without_news(case: Case) -> Step | None:
    if case.heard.is_any:
        return None
    return case.hold("nothing was heard of the traffic lately, and missing is not zero")


def _at_zero(case: Case) -> Step | None:
    """None runs: as soon as somebody asks, one comes."""
    if not case.is_at_zero:
        return None
    if not case.is_asked:
        return case.hold("nobody asks, and none is needed")
    replicas = case.sizing.first(1)
    if sum(replicas.values()):
        rates = case.rates_now
        mix = case.sizing.grow(rates)
        if mix.is_feasible and sum(mix.replicas.values()) > 1:
            replicas = dict(mix.replicas)
    if not sum(replicas.values()):
        return case.hold("somebody asks, but no accelerator may be used")
    return Step(action="Wake", replicas=replicas, reason="somebody asks, and none was there")


def _to_zero(case: Case) -> Step | None:
    after = case.service.scale_to_zero_after_seconds
    if after is None or case.service.min_replicas > 0 or not case.heard.is_all:
        return None
    idle = case.now - max(case.memory.last_request_at, case.memory.since)
    if idle < after or case.heard.num_running or case.heard.num_waiting:
        return None
    least = {one.name: one.lowest for one in case.limits.limits}
    if least == case.fleet.ordered:
        return None
    return Step(action="Zero", replicas=least, reason=f"nobody has asked for {idle:.0f} s")


def _idle(case: Case) -> Step | None:
    """Nobody asks: there is nothing to stand in for."""
    if not case.heard.silent or case.is_asked or case.demand is None or case.demand.rate > 0:
        return None
    return case.hold("nobody asks, and who says nothing stays")


def _up(case: Case) -> Step | None:
    """Add what is missing."""
    fleet = case.fleet
    if case.demand is None and not case.urgency.is_urgent:
        return None
    if not case.offers.are_known:
        return _up_by_one(case)
    rates = case.rates_now
    load = case.load_now
    slack = 0.0 if case.urgency.is_urgent else SLACK
    if load <= 1.0 + slack and fleet.num_useful:
        return None
    replicas = _grow(case, rates)
    if replicas == fleet.ordered:
        why = f"load is {_share(load)} the target" if fleet.num_useful else "nothing serves"
        held = case.hold(f"{why}, and the bounds allow nothing that helps")
        return replace(held, is_stuck=True)
    reason = f"load would be {_share(load)} the target"
    if not fleet.num_useful:
        reason = "nothing serves, and nothing is on its way"
    if case.urgency.is_urgent:
        return Step(action="Up", replicas=replicas, reason=f"{case.urgency.reason}: {reason}")
    if _is_chance(case):
        held = case.hold(f"{reason}, by traffic that has been watched for too short a time")
        return replace(held, is_rising=True)
    is_another = math.isinf(load) and fleet.num_useful > 0
    patience = max(case.service.up_seconds, _ANOTHER_SECONDS if is_another else 0.0)
    if case.rising_seconds < patience:
        held = case.hold(f"{reason}; more is added when it has been for stabilization.up")
        return replace(held, is_rising=True)
    return Step(action="Up", replicas=replicas, reason=reason)


def _is_chance(case: Case) -> bool:
    """Whether what serves may be enough, and little was watched, as after a restart.

    How full replicas were meanwhile does not tell either; above the admission edge it is urgent.
    Where requests wait too long, those that are on their way are not enough.
    """
    demand = case.demand
    if demand is None or demand.sure >= 1.0 or not case.fleet.num_ready or case.urgency.is_late:
        return False
    part = demand.sure / (demand.certain * case.urgency.times)
    rates = [part * rate for rate in case.rates_now]
    return case.sizing.load(case.fleet.useful, rates) <= 1.0 + SLACK


def _grow(case: Case, rates: list[float]) -> dict[str, int]:
    """What there is and what is missing."""
    grown = case.sizing.grow(rates)
    if grown.is_feasible:
        return _grow_otherwise(case, grown, rates) or dict(grown.replicas)
    afresh = case.sizing.afresh(rates)
    case.note_infeasible(min(grown.unserved, afresh.unserved))
    within = case.limits.clamp(grown.replicas)
    if grown.unserved - afresh.unserved <= _MUCH_BETTER:
        return within
    # no room for more of what there is: what does more of it takes its place
    return _swap(case, case.limits.clamp(afresh.replicas)) or within


def _swap(case: Case, wanted: Mapping[str, int]) -> dict[str, int] | None:
    """What does more beside what serves or will; without room for both, one for one.

    What goes serves until then, and what comes may fail or find no node: so one at a time, of at
    least four, and none within the stabilization window after anything was added; and none for what
    was short the last time, which each try would pay for with what serves. None: not now.
    """
    fleet, limits = case.fleet, case.limits
    both = {
        name: max(
            wanted[name],
            count,
            fleet.serving[name],
            # its own failing ones make no room for more of the same: they would come and go
            fleet.ordered[name] if wanted[name] > count else 0,
        )
        for name, count in fleet.useful.items()
    }
    if limits.allow(both):
        return both
    if case.has_added_lately or fleet.num_useful > fleet.num_ready or fleet.num_ready < _AT_A_TIME:
        return None
    fewer = [name for name, count in fleet.ready.items() if count > wanted[name]]
    more = [
        name
        for name, count in fleet.ordered.items()
        if count < wanted[name] and name not in case.memory.retried
    ]
    for goes in fewer:
        for comes in more:
            swapped = dict(fleet.ordered)
            swapped[goes] -= 1
            swapped[comes] += 1
            if limits.allow(swapped):
                return swapped
    return None


def _grow_otherwise(case: Case, grown: Mix, rates: list[float]) -> dict[str, int] | None:
    """What would serve alone beside what there is, if that costs so much less than to add to it.

    Something has to come anyway, so no window is waited for as before a move; what is then too
    much goes when this serves. It is hardly dearer than what there is: a peak may pass, and what
    was added for it would go. None: it does not save enough.
    """
    sizing, fleet, limits = case.sizing, case.fleet, case.limits
    costs = grown.cost - limits.cost(fleet.ordered) + limits.cost(fleet.useful)
    as_cheap = (1.0 + _ALIKE) * limits.cost(fleet.ordered)
    most = min((1.0 - _WORTH_MOVING) * costs, as_cheap)
    if _ALMOST * (1.0 + _MOVE_MARGIN) * sizing.least_cost(rates, most) > most:
        return None  # not even parts of replicas would cost as little
    mix = sizing.afresh([rate * (1.0 + _MOVE_MARGIN) for rate in rates])
    both = {
        name: count + max(mix.replicas[name] - fleet.useful[name], 0)
        for name, count in fleet.ordered.items()
    }
    saving = _least_saving(limits.cost(both) - grown.cost, costs)
    is_cheaper = mix.cost <= min(costs - saving, as_cheap)
    return both if mix.is_feasible and is_cheaper and limits.allow(both) else None


def _up_by_one(case: Case) -> Step | None:
    """Nothing is known of what a replica can do: one more while they are too full."""
    fleet = case.fleet
    if not case.urgency.is_urgent or fleet.num_useful > fleet.num_ready:
        return None
    more = case.sizing.first(fleet.num_ordered + 1)
    replicas = {name: max(more[name], count) for name, count in fleet.ordered.items()}
    replicas = case.limits.clamp(replicas)
    if sum(replicas.values()) <= fleet.num_ordered:
        return None
    return Step(action="Up", replicas=replicas, reason=case.urgency.reason)


def _down(case: Case) -> Step | None:
    """Take away what is too much, or let something cheaper take its place."""
    why_not = case.why_not_down()
    if why_not or case.demand is None:
        return case.hold(why_not) if why_not != "unknown" else None
    factor = window_factor(case.service, case.demand)
    rates = [rate * factor for rate in case.rates_at_peak]
    if case.sizing.has_surplus(rates):
        least = case.sizing.shrink(rates)
        if least.is_feasible and _is_worth_it(case, least):
            return _take_away(case, least.replicas, rates)
    return _move(case, rates)


def _is_worth_it(case: Case, least: Mix) -> bool:
    """Whether a part of what there is costs less by more than a near tie."""
    if least.replicas == case.fleet.ordered:
        return False
    most = (1.0 - _WORTHWHILE) * case.limits.cost(case.fleet.ordered)
    return least.cost <= most or case.has_useless(least.replicas)


def _move(case: Case, rates: list[float]) -> Step | None:
    """Let others come, if they save more than it costs that both are there for a while.

    They must do so at the peak and now, and have done so for half of a window: while traffic falls,
    what there is becomes fewer, and that saves as much.
    """
    sizing, fleet, limits = case.sizing, case.fleet, case.limits
    costs = limits.cost(fleet.ordered)
    is_enough = sizing.is_enough(fleet.useful, case.rates_at_peak)
    # no move follows what was added lately, so that nobody looks for what it could save
    most = (1.0 - _WORTH_MOVING) * costs
    least = costs if case.has_added_lately else sizing.least_cost(rates, most)
    if is_enough and costs - least < _WORTH_MOVING * costs:
        return None
    wanted = [rate * (1.0 + _MOVE_MARGIN) for rate in rates]
    saved = costs - _ALMOST * (1.0 + _MOVE_MARGIN) * least  # at most, by parts of replicas
    if saved < _WORTH_MOVING * costs and sizing.may_surely_carry(wanted):
        return None
    mix = sizing.afresh(wanted)
    if not mix.is_feasible:
        case.note_infeasible(mix.unserved, at_peak=True)
        return None
    both = {name: max(count, mix.replicas[name]) for name, count in fleet.ordered.items()}
    coming = limits.cost(both) - costs
    saving = _least_saving(coming, costs)
    if case.has_added_lately or both == fleet.ordered or costs - mix.cost < saving:
        return None
    now = sizing.shrink(case.rates_now)
    if now.cost - sizing.afresh(case.rates_now).cost < saving:
        return None
    if case.better_seconds < _BETTER_PART * case.service.down_seconds:
        held = case.hold("a cheaper mix is known; it comes if it stays cheaper")
        return replace(held, is_better_known=True)
    if not limits.allow(both):
        held = case.hold(
            "a cheaper mix is known, but the bounds leave no room for it beside what runs"
        )
        return replace(held, is_better_known=True)
    return Step(
        action="Move",
        replicas=both,
        wanted=mix.replicas,
        reason=f"the same is served for {mix.cost:.2f} an hour instead of {costs:.2f}",
    )


def _least_saving(coming: float, costs: float) -> float:
    """An hour, that others must save who cost `coming` more as long as both are there."""
    return max(coming * _START_SECONDS / _STAY_SECONDS, _WORTH_MOVING * costs)


def _take_away(case: Case, wanted: Mapping[str, int], rates: list[float]) -> Step:
    """Take replicas away one by one, as long as the others carry what they did."""
    replicas, ready = dict(case.fleet.ordered), dict(case.fleet.ready)
    victims: list[Replica] = []
    most = max(sum(replicas.values()) // _AT_A_TIME, 1)
    while len(victims) < most:
        surplus = [name for name, count in replicas.items() if count > wanted[name]]
        left = [one for one in case.service.replicas if one not in victims]
        for victim in next_victims(left, surplus, case.limits.limits):
            without = ready | {victim.accelerator: ready[victim.accelerator] - serves(victim)}
            if case.sizing.is_enough(without, rates):
                break
        else:
            break
        victims.append(victim)
        ready = without
        replicas[victim.accelerator] -= 1
    if not victims:
        held = case.hold("fewer are enough, once those that are to stay are ready")
        return replace(held, wanted=wanted)
    return Step(
        action="Down",
        replicas=replicas,
        wanted=wanted,
        victims=tuple(one.name for one in victims),
        reason=f"the others would have carried the last {case.service.down_seconds:g} s",
    )


def _share(load: float) -> str:
    """In words that "the target" follows."""
    return f"{100 * load:.0f} % of" if load < 100 else "far above"


_RULES = (
    _begin,
    _take_over,
    keep_bounds,
    stand_in,
    _without_news,
    _at_zero,
    _to_zero,
    _idle,
    _up,
    _down,
)
"""The first that has something to say decides."""
