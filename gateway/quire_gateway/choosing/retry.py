"""What waits: its cost, and the time until there will be room for it."""

from collections.abc import Iterable, Mapping
from math import inf

from quire_gateway.choosing.choose import Chance
from quire_gateway.choosing.demand import Demand
from quire_gateway.choosing.endpoint import Endpoint, count_shared
from quire_gateway.choosing.figures import Figures

MIN_SECONDS = 1.0
MAX_SECONDS = 60.0
_JITTER = 0.2
_COST_BLOCK = 16
"""Tokens of the blocks that costs in the queue are counted in."""


def count_cost(demand: Demand, endpoints: Iterable[Endpoint], hits: Mapping[int, int]) -> float:
    """Return the blocks that it will take, less those that it shares wherever it shares most.

    Parameters
    ----------
    hits
        Chunks of the prompt's start that each endpoint has, by slot.
    """
    shared = max(
        (
            count_shared(demand, one, hits[one.slot], _COST_BLOCK)
            for one in endpoints
            if one.slot in hits
        ),
        default=0,
    )
    return max(demand.blocks(_COST_BLOCK) - shared, 1.0)


def predict_wait(endpoints: Iterable[Endpoint], demand: Demand, queued_blocks: float) -> float:
    """Return the seconds until what waits and this request have found room.

    An answer of mean length takes `num_output_tokens` steps, and gives its blocks and its seat
    back: so fast each engine makes room. Those that have room now are waited for nowhere but in
    their queue of prompts.
    """
    blocks_per_second, free, soonest = 0.0, 0.0, inf
    for endpoint in endpoints:
        figures = endpoint.figures
        if figures is None:
            continue
        size = demand.blocks(figures.block_size)
        seats = max(figures.num_free_seats, 0) * size
        free += min(max(figures.free_blocks, 0.0), seats)
        blocks_per_second += _blocks_per_second(figures, demand)
        soonest = min(soonest, figures.queue_seconds)
    if soonest == inf:
        return MAX_SECONDS
    missing = max(queued_blocks - free, 0.0)
    wait = missing / blocks_per_second if blocks_per_second else 0.0
    return max(wait, soonest)


def _blocks_per_second(figures: Figures, demand: Demand) -> float:
    seconds = demand.num_output_tokens * figures.seconds_per_output_token
    held = max(figures.num_blocks - figures.free_blocks, 0.0)
    return held / seconds if seconds else 0.0


def jitter(seconds: float, chance: Chance) -> float:
    """Return what a client is told: within bounds, and up to a fifth more, or all come at once."""
    bounded = min(max(seconds, MIN_SECONDS), MAX_SECONDS)
    return min(bounded * (1.0 + _JITTER * chance()), MAX_SECONDS)
