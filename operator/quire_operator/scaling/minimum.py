"""minReplicas where prices stand in its way: one that is dear makes room for several cheap ones.

With an A10G and a T4 that cost as much as may be spent, three T4 would be the minimum: to add to
what there is does not lead there.
"""

from collections.abc import Mapping

from quire_operator.scaling.clamping import Limits
from quire_operator.scaling.mix import NO_COST

_AT_A_TIME = 4
"""So many times what goes at once of what serves there must be: what comes may fail."""


def trade(
    limits: Limits, replicas: Mapping[str, int], serving: Mapping[str, int], *, is_coming: bool
) -> dict[str, int] | None:
    """Replicas within the bounds that are nearer to the minimum, as near to these as can be.

    What fails goes first, then the dearest, one after another, and others come in their place.
    Of those that serve a quarter goes at a time, and never the last; the others when what comes
    serves. None: nothing would be won now.

    Parameters
    ----------
    serving
        Replicas that serve now, of those that are counted on.
    is_coming
        Whether others are on their way.
    """
    fewest, least = limits.bounds.fewest, limits.least
    num_serving = _num_serving(replicas, serving)
    may_go = 0 if is_coming else min(max(num_serving // _AT_A_TIME, 1), max(num_serving - 1, 0))
    worst_first = limits.best_first[::-1]
    found, best, gone = dict(replicas), None, set()
    while sum(found.values()) < fewest:
        goes = next((one for one in worst_first if found[one.name] > one.lowest), None)
        if goes is None:
            found = dict(least)
        else:
            gone.add(goes.name)
            found[goes.name] -= 1
            others = [one for one in limits.best_first if one.name not in gone]
            while sum(found.values()) < fewest and limits.add(found, others):
                pass
        is_served = num_serving - _num_serving(found, serving) <= may_go
        if is_served and _is_nearer(limits, found, replicas):
            best = dict(found)
        if goes is None:
            break
    return best


def _is_nearer(limits: Limits, found: Mapping[str, int], before: Mapping[str, int]) -> bool:
    """Whether more are to be expected to serve, or more in all, or as many for less.

    What is as good for as much is not: it would come and go.
    """
    doubtful = {one.name for one in limits.limits if one.is_doubtful}

    def hoped(replicas: Mapping[str, int]) -> tuple[int, int]:
        firm = sum(count for name, count in replicas.items() if name not in doubtful)
        return min(firm, limits.bounds.fewest), sum(replicas.values())

    if hoped(found) != hoped(before):
        return hoped(found) > hoped(before)
    return limits.cost(found) < limits.cost(before) - NO_COST


def _num_serving(replicas: Mapping[str, int], serving: Mapping[str, int]) -> int:
    return sum(min(count, serving[name]) for name, count in replicas.items())
