"""Answers of linear programs that are found by sorting, in a twentieth of the time.

Of memory and time each accelerator mostly runs out of the same one, however the load is spread. So
one of the two is taken to be all that counts of it, first time. Then groups go where they cost the
least beside the others. If the other one is not exceeded by that, it is the answer: no spreading is
better where less is asked for. Else that one is tried, and where none fits a solver must be asked.
"""

import math
from collections.abc import Sequence

from quire_operator.scaling.grouping import Group

_TIME = 1
"""Of the two, by their places in a group's loads: memory and time."""
_BARELY = 1e-12
"""Part of a load: what is more by less is the same."""


def load_of_two(groups: Sequence[Group], counts: tuple[float, float]) -> float | None:
    """Load of the busiest of two accelerators' replicas, if they share all as evenly as can be.

    None: it has to be looked for otherwise.
    """
    kinds, tried = (_TIME, _TIME), []
    while kinds not in tried:
        tried.append(kinds)
        loads = _share(groups, counts, kinds)
        busiest = max(one[kind] for one, kind in zip(loads, kinds, strict=True))
        over = [one[1 - kind] - busiest for one, kind in zip(loads, kinds, strict=True)]
        if max(over) <= _BARELY * busiest:
            return busiest
        first, second = kinds
        kinds = (1 - first, second) if over[0] >= over[1] else (first, 1 - second)
    return None


def _share(
    groups: Sequence[Group], counts: tuple[float, float], kinds: tuple[int, int]
) -> tuple[list[float], list[float]]:
    """Loads of two where only these kinds of them count: what the first is best for goes to it."""
    both: list[tuple[tuple[float, float], tuple[float, float]]] = []
    firsts, seconds = [0.0, 0.0], [0.0, 0.0]
    for group in groups:
        first, second = group.loads
        if first is not None and second is not None:
            both.append((first, second))
        part, loads = (seconds, second) if second is not None else (firsts, first)
        if loads is not None:
            part[0] += loads[0]
            part[1] += loads[1]
    (one, other), (num, others) = kinds, counts
    both.sort(key=lambda pair: math.atan2(pair[0][one], pair[1][other]))
    for first, second in both:
        gap = seconds[other] / others - firsts[one] / num
        closed = first[one] / num + second[other] / others
        if gap <= 0.0:
            break
        share = min(gap / closed, 1.0) if closed > 0.0 else 1.0
        for kind in (0, 1):
            firsts[kind] += share * first[kind]
            seconds[kind] -= share * second[kind]
    return [load / num for load in firsts], [load / others for load in seconds]


def cost_of_parts(groups: Sequence[Group], costs: Sequence[float]) -> float | None:
    """What the parts of replicas cost an hour that are the cheapest for these groups.

    None: it has to be looked for otherwise. All groups are served by some accelerator.
    """
    kinds, tried = [_TIME] * len(costs), []
    while kinds not in tried:
        tried.append(kinds)
        used = [[0.0, 0.0] for _ in costs]
        for group in groups:
            served = [(costs[at] * one[kinds[at]], at) for at, one in enumerate(group.loads) if one]
            _, cheapest = min(served)
            memory, time = group.loads[cheapest] or (0.0, 0.0)
            used[cheapest][0] += memory
            used[cheapest][1] += time
        exceeded = [
            loads[1 - kind] > (1.0 + _BARELY) * loads[kind]
            for loads, kind in zip(used, kinds, strict=True)
        ]
        if not any(exceeded):
            return sum(
                cost * loads[kind] for cost, loads, kind in zip(costs, used, kinds, strict=True)
            )
        kinds = [1 - kind if over else kind for kind, over in zip(kinds, exceeded, strict=True)]
    return None
