"""minReplicas where prices stand in its way: one that is dear makes room for several cheap ones.

With an A10G and a T4 that cost as much as may be spent, three T4 would be the minimum: to add to
what there is does not lead there.
"""

from collections.abc import Mapping

from quire_operator.scaling.clamping import Limits


def trade(
    limits: Limits, replicas: Mapping[str, int], serving: Mapping[str, int]
) -> dict[str, int] | None:
    """Replicas within the bounds that are nearer to the minimum, as near to these as can be.

    What fails goes first, then the dearest, one after another, and others come in their place.
    One of those that serve stays: where all would have to go, some go first, and the others when
    what comes serves. None: nothing would be won now.

    Parameters
    ----------
    serving
        Replicas that serve now, of those that are counted on.
    """
    fewest, least = limits.bounds.fewest, limits.least
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
        if _is_nearer(limits, found, replicas) and _serve(found, serving):
            best = dict(found)
        if goes is None:
            break
    return best


def _is_nearer(limits: Limits, found: Mapping[str, int], before: Mapping[str, int]) -> bool:
    """Whether no fewer are to be expected to serve, nor fewer in all."""
    doubtful = {one.name for one in limits.limits if one.is_doubtful}

    def hoped(replicas: Mapping[str, int]) -> tuple[int, int]:
        firm = sum(count for name, count in replicas.items() if name not in doubtful)
        return min(firm, limits.bounds.fewest), sum(replicas.values())

    return dict(found) != dict(before) and hoped(found) >= hoped(before)


def _serve(replicas: Mapping[str, int], serving: Mapping[str, int]) -> bool:
    """Whether one stays of those that serve, if there are any."""
    return not any(serving.values()) or any(
        count and serving[name] for name, count in replicas.items()
    )
