"""The spec's bounds: kept at once, and by what serves before what is on its way."""

from dataclasses import replace

from quire_operator.scaling.case import Case, Step
from quire_operator.scaling.minimum import trade


def keep_bounds(case: Case) -> Step | None:
    """Keep to the spec, whatever else is so."""
    ordered, limits = case.fleet.ordered, case.limits
    within = limits.clamp(ordered)
    if within != ordered:
        within = _serving_first(case, within)
    if traded := _make_minimum(case, within):
        return Step(action="Limit", replicas=traded, reason="there were fewer than minReplicas")
    if within == ordered:
        return None
    more = sum(within.values()) > sum(ordered.values())
    reason = "fewer than minReplicas" if more else f"more than {limits.explain(ordered)}"
    if case.is_at_zero and more:
        first = case.sizing.first(sum(within.values()))
        within = first if any(first.values()) else within
    kept = _until_others_serve(case, within)
    if kept != within and kept == ordered:
        return case.hold("what has to go stays until what stands in for it serves")
    if kept == ordered:
        return None
    return Step(action="Limit", replicas=kept, reason=f"there were {reason}")


def _make_minimum(case: Case, within: dict[str, int]) -> dict[str, int] | None:
    """Others in the place of some, where there are too few. None: not now, or there are enough."""
    fleet, limits = case.fleet, case.limits
    if sum(within.values()) >= limits.bounds.fewest:
        return None
    is_coming = fleet.num_useful > fleet.num_ready
    return trade(limits, within, fleet.counted_on, is_coming=is_coming)


def _serving_first(case: Case, within: dict[str, int]) -> dict[str, int]:
    """Within the bounds, too, but with more that serves, if there is such: what comes may fail.

    What is silent comes after what speaks, and before what is on its way.
    """
    fleet, limits = case.fleet, case.limits
    upper = replace(limits, bounds=replace(limits.bounds, fewest=0))
    found = upper.clamp(fleet.ready)
    for counts in (fleet.serving, fleet.ordered):
        for name, count in counts.items():
            while found[name] < count and upper.allow(found | {name: found[name] + 1}):
                found[name] += 1
    found = limits.clamp(found)

    def serving(replicas: dict[str, int]) -> tuple[int, int]:
        return fleet.num_ready_of(replicas), fleet.num_serving_of(replicas)

    return found if serving(found) > serving(within) else within


def _until_others_serve(case: Case, within: dict[str, int]) -> dict[str, int]:
    """With ready ones that others are to have the GPUs of, until the minimum is kept elsewhere."""
    fleet, limits = case.fleet, case.limits
    coming = sum(
        max(count - fleet.ready[name], 0)
        for name, count in within.items()
        if name not in fleet.blocked
    )
    missing = min(coming, limits.bounds.fewest - fleet.num_ready_of(within))
    kept = dict(within)
    for counts in (fleet.ready, fleet.serving):
        for name, count in counts.items():
            back = max(min(count - kept[name], missing), 0)
            kept[name] += back
            missing -= back
    return kept if limits.allow_beside_others(kept) else within
