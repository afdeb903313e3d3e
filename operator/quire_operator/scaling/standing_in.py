"""Others for what found no node, where what is asked does not say how many."""

from collections.abc import Mapping, Sequence

from quire_operator.scaling.case import Case, Step


def stand_in(case: Case) -> Step | None:
    """Let others make up the minimum where an accelerator found no node.

    Where nothing is heard, they carry what that carried when it was.
    """
    fleet, limits = case.fleet, case.limits
    if not fleet.num_useful and case.demand is not None:
        return None  # what is asked says how many
    short = fleet.blocked & case.memory.short.keys()
    reason = "fewer than minReplicas found a node, and others stand in for them"
    rates = case.rates_relied_on if short and not case.heard.is_any else []
    if rates and not _make_up(case, fleet.useful, rates):
        reason = "nothing is heard, and others stand in for what found no node"
        grown = case.sizing.grow(rates)
        if grown.is_feasible and grown.replicas != fleet.ordered:
            return Step(action="Limit", replicas=dict(grown.replicas), reason=reason)
    replicas, useful = dict(fleet.ordered), dict(fleet.useful)
    others = {one.accelerator.name for one in case.offers.offers} - fleet.blocked
    lowest = {one.name: one.lowest for one in limits.limits}
    for name in sorted(short):
        least = max(fleet.useful[name], fleet.serving[name], lowest[name])
        while replicas[name] > least and not _make_up(case, useful, rates):
            made = limits.stand_in(replicas, name, others)
            if made is None:
                break
            useful |= {one: useful[one] + made[one] - replicas[one] for one in others}
            replicas = made
    if replicas == fleet.ordered:
        return None
    return Step(action="Limit", replicas=replicas, reason=reason)


def _make_up(case: Case, useful: Mapping[str, int], rates: Sequence[float]) -> bool:
    """Whether these are the minimum, and carry these rates; none: whatever is asked."""
    is_minimum = sum(useful.values()) >= case.limits.bounds.fewest
    return is_minimum and (not rates or case.sizing.is_enough(useful, rates))
