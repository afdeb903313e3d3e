"""What replicas for some load cost at least: as if there were parts of replicas.

Linear programs without integers: they take a tenth of the time of `choose`, which is asked only
where these leave something to gain.
"""

import math
from collections.abc import Sequence

from quire_operator.scaling.grouping import Group
from quire_operator.scaling.mix import MOVE_COST, NEGLIGIBLE, Option, group_of
from quire_operator.scaling.programs import Row, Shares, make_model, run
from quire_operator.scaling.without_solver import cost_of_parts


def least_cost(options: Sequence[Option], rates: Sequence[float], most: float = math.inf) -> float:
    """What replicas for these rates that cost no more than `most` cost at least, an hour.

    Whatever there is and the bounds are. What nobody can serve costs nothing.

    Parameters
    ----------
    most
        An hour. A replica that costs more is not among them, nor is a part of it; infinity is
        returned where it would be missed.
    """
    groups = _served(group_of(options, rates))
    are_used = [one.cost <= most or one.lowest > 0 for one in options]
    if not all(are_used):
        weight = _weight(groups)
        groups = _served([group.of(are_used) for group in groups])
        if _weight(groups) < (1.0 - NEGLIGIBLE) * weight:
            return math.inf
    if not groups:
        return 0.0
    costs = [one.cost for one in options]
    found = cost_of_parts(groups, costs)
    if found is not None:
        return found
    columns = Shares(groups, len(costs), len(costs))
    rows = [Row({at: -1.0} | loads, -math.inf, 0.0) for at, loads in _loads(columns)]
    return _solve(costs, [0.0] * len(costs), columns, rows)


def least_costs_beside(options: Sequence[Option], rates: Sequence[float]) -> float:
    """The same beside replicas that have to be, with what others cost to come: see `MOVE_COST`."""
    groups = _served(group_of(options, rates))
    num = len(options)
    columns = Shares(groups, num, 2 * num)
    rows = [
        Row({at: -1.0} | loads, -math.inf, -float(options[at].num_idle) if loads else 0.0)
        for at, loads in _loads(columns)
    ]
    rows += [Row({at: 1.0, num + at: -1.0}, -math.inf, options[at].current) for at in range(num)]
    costs = [one.cost for one in options]
    lowest = [float(one.lowest) for one in options]
    return _solve(
        [*costs, *(MOVE_COST * cost for cost in costs)], [*lowest, *[0.0] * num], columns, rows
    )


def _served(groups: Sequence[Group]) -> list[Group]:
    return [one for one in groups if one.is_served]


def _weight(groups: Sequence[Group]) -> float:
    return sum(group.weight for group in groups)


def _loads(columns: Shares) -> list[tuple[int, dict[int, float]]]:
    """Of memory and of time, with the accelerator's number."""
    return [(at, loads) for at, both in enumerate(columns.loads) for loads in both]


def _solve(
    costs: Sequence[float], lowest: Sequence[float], columns: Shares, rows: Sequence[Row]
) -> float:
    """Least costs of the first columns, beside those of what each accelerator serves."""
    others = [0.0] * len(columns.pairs)
    size = len(costs) + len(others)
    whole = [Row(values, 1.0, 1.0) for values in columns.of_group]
    values = run(
        make_model([*costs, *others], [*lowest, *others], [math.inf] * size, [*whole, *rows])
    )
    return sum(max(one, 0.0) * cost for one, cost in zip(values, costs, strict=False))
