"""The spec's bounds: kept at once, and by what serves before what is on its way."""

from dataclasses import replace

from quire_operator.scaling.case import Case, Step


def keep_bounds(case: Case) -> Step | None:
    """Keep to the spec, whatever else is so."""
    ordered = case.fleet.ordered
    within = case.limits.clamp(ordered)
    if within == ordered:
        return None
    within = _serving_first(case, within)
    more = sum(within.values()) > sum(ordered.values())
    reason = "fewer than minReplicas" if more else f"more than {case.limits.explain(ordered)}"
    if case.is_at_zero and more:
        within = case.sizing.first(sum(within.values()))
    kept = _until_others_serve(case, within)
    if kept != within and kept == ordered:
        return case.hold("what has to go stays until what stands in for it serves")
    if kept == ordered:
        return None
    return Step(action="Limit", replicas=kept, reason=f"there were {reason}")


def _serving_first(case: Case, within: dict[str, int]) -> dict[str, int]:
    """Within the bounds, too, but with more that serves, if there is such: what comes may fail."""
    fleet, limits = case.fleet, case.limits
    upper = replace(limits, bounds=replace(limits.bounds, fewest=0))
    found = upper.clamp(fleet.ready)
    for name, count in fleet.ordered.items():
        while found[name] < count and upper.allow(found | {name: found[name] + 1}):
            found[name] += 1
    found = limits.clamp(found)
    return found if fleet.num_serving_of(found) > fleet.num_serving_of(within) else within


def _until_others_serve(case: Case, within: dict[str, int]) -> dict[str, int]:
    """With ready ones that others are to have the GPUs of, until the minimum is kept elsewhere."""
    fleet, limits = case.fleet, case.limits
    coming = sum(
        max(count - fleet.ready[name], 0)
        for name, count in within.items()
        if name not in fleet.blocked
    )
    missing = min(coming, limits.bounds.fewest - fleet.num_serving_of(within))
    kept = dict(within)
    for name, ready in fleet.ready.items():
        back = max(min(ready - within[name], missing), 0)
        kept[name] += back
        missing -= back
    return kept if limits.allow_beside_others(kept) else within
