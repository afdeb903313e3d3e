"""The cheapest replicas where the same accelerators may be loaded in several ways.

All may take whatever they can serve, or long prompts are kept apart on the fast ones: which is
cheaper depends on the traffic, the prices and what there is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from quire_operator.scaling.loads import Loads, keep_apart
from quire_operator.scaling.mix import MOVE_COST, Bounds, Mix, Option, choose
from quire_operator.scaling.parts import least_cost, least_costs_beside

_WORTH_A_LOOK = 0.02
"""Of the cost, that parts of replicas would have to save: whole ones save less."""
_ALIKE = 1e-4
"""Part of the load, that is as good as nothing."""


def spare_the_slow(options: Sequence[Option], quick: Mapping[str, Loads]) -> list[list[Option]]:
    """The same where long prompts are kept apart; empty: it makes no difference.

    Parameters
    ----------
    options
        Those of which there are some or may be: what never comes has no part.
    quick
        Loads of what is quick on an accelerator, by its name.
    """
    loads = [one.loads for one in options]
    return [
        [replace(one, loads=own) for one, own in zip(options, way, strict=True)]
        for way in keep_apart(loads, [quick.get(one.name, one.loads) for one in options])
    ]


def all_ways(options: Sequence[Option], quick: Mapping[str, Loads]) -> list[list[Option]]:
    """All share all, and then each way in which long prompts are kept apart; see `choose_of`."""
    ways = [list(options)]
    for way in spare_the_slow([one for one in options if _may_be(one)], quick):
        spared = {one.name: one for one in way}
        ways.append([spared.get(one.name, one) for one in options])
    return ways


def _may_be(option: Option) -> bool:
    return max(option.lowest, option.highest) > 0


def choose_of(ways: Sequence[Sequence[Option]], rates: Sequence[float], bounds: Bounds) -> Mix:
    """Choose what leaves the least unserved; of those, what costs the least, its coming included.

    Parameters
    ----------
    ways
        The same accelerators with other loads. The first way counts unless another is better.
    """
    best = choose(ways[0], rates, bounds)
    best_costs = _costs(best, ways[0])
    for options in ways[1:]:
        if best.is_feasible and not _may_save(options, rates, best, best_costs):
            continue
        mix = choose(options, rates, bounds)
        costs = _costs(mix, options)
        is_more = mix.unserved < best.unserved - _ALIKE
        if is_more or (mix.unserved <= best.unserved + _ALIKE and costs < best_costs):
            best, best_costs = mix, costs
    return best


def _may_save(
    options: Sequence[Option], rates: Sequence[float], best: Mix, best_costs: float
) -> bool:
    """Whether others could cost less: a look that takes a tenth of the time."""
    least = sum(one.cost * one.lowest for one in options)
    if not any(one.lowest for one in options):  # something there has to be
        least = min((one.cost for one in options if one.highest > 0), default=0.0)
    if best.cost <= least:
        return False
    saving = _WORTH_A_LOOK * best.cost
    most = best.cost - saving
    if least_cost(options, rates, most) >= most:
        return False
    return least_costs_beside(options, rates) < best_costs - saving


def _costs(mix: Mix, options: Sequence[Option]) -> float:
    """An hour, with what has to come."""
    coming = sum(one.cost * max(mix.replicas[one.name] - one.current, 0) for one in options)
    return mix.cost + MOVE_COST * coming
