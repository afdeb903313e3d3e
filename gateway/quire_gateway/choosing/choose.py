"""Where a request costs all clients together the least time.

    candidates    healthy, with room, first token in time, tokens as fast as promised
    score         10 x (prompts ahead + its own uncached prompt, thrice what another engine has
                  cached of it) + what it slows others down
    near equals   with nothing cached anywhere: by rendezvous hashing among those that cache, load
                  bounded, so that equal prefixes meet before any engine has told of them; else the
                  less loaded of two

How fast its own tokens would come is no part of the score: a fast engine that is chosen for that
gets the longest queue, and no client gains by a pace above the promised one.

Beyond `MANY` endpoints those with cached prefixes and a random sample are looked at.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf
from operator import itemgetter

from quire_gateway.choosing.demand import Demand
from quire_gateway.choosing.endpoint import Endpoint, count_shared
from quire_gateway.choosing.figures import Figures

Chance = Callable[[], float]
"""A number from 0 to below 1, evenly."""

MANY = 32
"""So many take 40 microseconds."""
PROMPT_WEIGHT = 10.0
"""A prompt in an engine's queue delays those that come behind it, too: the decodes beside which it
is computed, and the prompts of the next seconds."""
COPY_WEIGHT = 2.0
"""What another engine has cached is worth so much more here than the seconds it takes to compute:
a copy displaces other prompts, which then have to be computed again."""
SPARE_SHARE = 0.1
"""With less than this share of its blocks free an endpoint gets no copy of a prompt that another
one has, as long as who asks for it may wait: the copy would hold blocks that others wait for."""
NEAR_SHARE = 1.1
"""Scores within a tenth of the best are as good: predictions are not more exact."""
NEAR_SECONDS = 0.002
LOAD_BOUND = 1.25
"""By hashing no engine gets more than this times the mean load of its equals."""
STALE_SECONDS = 3.0

_MASK, _ODD = (1 << 64) - 1, 0x9E3779B97F4A7C15
"""Names and seeds are hashes: a product with both in it is a rank."""
_RANK = itemgetter(0)


def choose(
    endpoints: Sequence[Endpoint],
    demand: Demand,
    hits: Mapping[int, int],
    *,
    now: float,
    chance: Chance,
    without: Collection[Endpoint] = (),
    is_patient: bool = False,
    stale_seconds: float = STALE_SECONDS,
) -> Endpoint | None:
    """Choose an endpoint that can start this request now; None if none can.

    Parameters
    ----------
    hits
        Chunks of the prompt's start that each endpoint has, by slot.
    without
        Endpoints that have refused it already.
    is_patient
        Whether it may wait for an endpoint that has its prompt, where others have little to spare.
    """
    best, scored = inf, []
    block_size, num_blocks, deviation = 0, 0.0, 0.0
    all_uncached = count_uncached(demand, 0)
    latest = _latest(demand, now)
    most_hits = max(hits.values(), default=0)
    usable = _usable(_sample(endpoints, hits, chance), without, now, stale_seconds)
    if is_patient and hits:
        usable = _without_copies(usable, demand, hits)
    for endpoint, figures in usable:
        if figures.block_size != block_size:  # engines of one service have the same, mostly
            block_size = figures.block_size
            num_blocks, deviation = demand.blocks_and_deviation(block_size)
            deviation /= max(num_blocks, 1.0)  # of a block: those that are shared stay
        num_hits = hits.get(endpoint.slot, 0)
        needed = num_blocks
        if num_hits:
            needed -= count_shared(demand, endpoint, num_hits, block_size)
        if needed >= endpoint.refused_blocks:
            continue
        if not has_room(figures, demand, needed * (1.0 + figures.z * deviation)):
            continue
        uncached = count_uncached(demand, num_hits) if num_hits else all_uncached
        until_first = uncached * figures.seconds_per_prompt_token
        until_first += endpoint.busy_until - now if endpoint.busy_until > now else 0.0
        is_late = latest is not None and (until_first > latest or not figures.meets_step_time)
        if is_late and not figures.is_empty:
            continue
        if num_hits < most_hits and endpoint.has_prefix_cache:  # else no copy comes of it
            until_first += figures.seconds_per_prompt_token * _weigh_copy(
                demand, uncached, most_hits
            )
        score = PROMPT_WEIGHT * until_first + demand.num_output_tokens * figures.slow_down_seconds
        score *= endpoint.penalty(now) * endpoint.lean.factor
        scored.append((score, endpoint, figures.num_requests))
        if score < best:
            best = score
    limit = best * NEAR_SHARE + NEAR_SECONDS
    near = [(endpoint, load) for score, endpoint, load in scored if score <= limit]
    return _among_equals(near, demand.chunks[0] if demand.chunks and not hits else None, chance)


def choose_roomiest(
    endpoints: Sequence[Endpoint],
    demand: Demand,
    *,
    now: float,
    stale_seconds: float = STALE_SECONDS,
) -> Endpoint | None:
    """Choose where a big request that has waited long will find room first."""
    able = [
        (figures.free_blocks - demand.blocks(figures.block_size), endpoint)
        for endpoint in endpoints
        if endpoint.is_eligible(now, stale_seconds)
        and (figures := endpoint.figures) is not None
        and demand.blocks(figures.block_size) <= figures.num_blocks
    ]
    return max(able, key=lambda pair: pair[0])[1] if able else None


def has_room(figures: Figures, demand: Demand, num_blocks: float) -> bool:
    """Whether blocks and seats are there; an empty engine takes what it can hold at all.

    Parameters
    ----------
    num_blocks
        What the demand is there, in the engine's blocks, with what is kept from the ceiling for it.
    """
    if figures.is_empty:
        return True  # whether it can ever fit is for the engine to say: it counts the tokens
    free = figures.free_background_blocks if demand.is_background else figures.free_blocks
    return figures.num_free_seats >= demand.num_sequences and free >= num_blocks


class Rooms:
    """What engines have room for at this moment: a look that costs a fraction of a choice."""

    def __init__(self, endpoints: Iterable[Endpoint], now: float, stale_seconds: float) -> None:
        self._rooms = {
            endpoint.slot: (endpoint, figures, min(figures.free_blocks, endpoint.refused_blocks))
            for endpoint, figures in _usable(endpoints, (), now, stale_seconds)
            if figures.is_empty or figures.num_free_seats > 0
        }
        self._has_empty = any(figures.is_empty for _, figures, _ in self._rooms.values())
        self._most: dict[int, float] = {}
        """Free blocks of the roomiest, by the size of its blocks."""
        for _, figures, free in self._rooms.values():
            self._most[figures.block_size] = max(self._most.get(figures.block_size, 0.0), free)

    def may_fit(self, demand: Demand, hits: Mapping[int, int]) -> bool:
        """Whether there may be room for a request: where there is not, none can be chosen."""
        if self._has_empty:
            return True
        if any(demand.blocks(size) <= free for size, free in self._most.items()):
            return True
        for slot, num_hits in hits.items():
            if slot in self._rooms:
                endpoint, figures, free = self._rooms[slot]
                size = figures.block_size
                if demand.blocks(size) - count_shared(demand, endpoint, num_hits, size) <= free:
                    return True
        return False


def count_uncached(demand: Demand, num_hits: int) -> float:
    """Return how many prompt tokens have to be computed; the last one always."""
    if not num_hits:
        return float(demand.num_prompt_tokens)
    share = 1.0 - num_hits / len(demand.chunks)
    return max(share * demand.num_prompt_tokens, 1.0)


def _weigh_copy(demand: Demand, uncached: float, most_hits: int) -> float:
    """Return as how many tokens more a copy of what another engine has counts."""
    return COPY_WEIGHT * (uncached - count_uncached(demand, most_hits))


def _latest(demand: Demand, now: float) -> float | None:
    """Seconds until the first token is due; None where neither that nor the pace is promised."""
    if demand.is_background:
        return None
    return inf if demand.deadline_seconds is None else demand.deadline_seconds - now


def _usable(
    endpoints: Iterable[Endpoint], without: Collection[Endpoint], now: float, stale_seconds: float
) -> list[tuple[Endpoint, Figures]]:
    return [
        (endpoint, figures)
        for endpoint in endpoints
        if endpoint not in without
        and endpoint.is_eligible(now, stale_seconds)
        and (figures := endpoint.figures) is not None
    ]


def _without_copies(
    usable: list[tuple[Endpoint, Figures]], demand: Demand, hits: Mapping[int, int]
) -> list[tuple[Endpoint, Figures]]:
    """Leave out who has little of the prompt, and little to spare."""
    most = max((hits.get(endpoint.slot, 0) for endpoint, _ in usable), default=0)
    return [
        (endpoint, figures)
        for endpoint, figures in usable
        if 2 * hits.get(endpoint.slot, 0) >= most
        or figures.free_blocks - demand.blocks(figures.block_size)
        >= SPARE_SHARE * figures.num_blocks
    ]


def _sample(
    endpoints: Sequence[Endpoint], hits: Mapping[int, int], chance: Chance
) -> Sequence[Endpoint]:
    if len(endpoints) <= MANY:
        return endpoints
    start = int(chance() * len(endpoints))
    some = [endpoints[(start + step) % len(endpoints)] for step in range(MANY)]
    chosen = set(some)
    return some + [one for one in endpoints if one.slot in hits and one not in chosen]


def _among_equals(
    near: list[tuple[Endpoint, int]], uncached: int | None, chance: Chance
) -> Endpoint | None:
    """Choose one of those whose scores are as good, with their loads.

    Parameters
    ----------
    uncached
        The prompt's first chunk, if nobody has it.
    """
    if len(near) < 2:
        return near[0][0] if near else None
    if uncached is not None and (hashed := _by_hash(near, uncached)) is not None:
        return hashed
    return _less_loaded_of_two(near, chance)


def _less_loaded_of_two(near: list[tuple[Endpoint, int]], chance: Chance) -> Endpoint:
    first = int(chance() * len(near))
    second = (first + 1 + int(chance() * (len(near) - 1))) % len(near)
    return min(near[first], near[second], key=lambda pair: pair[1])[0]


def _by_hash(near: list[tuple[Endpoint, int]], chunk: int) -> Endpoint | None:
    """Rendezvous hashing: each prefix has its own order of the engines; full ones are passed by."""
    bound = LOAD_BOUND * sum(load for _, load in near) / len(near) + 1.0
    free = [
        ((chunk ^ endpoint.seed) * _ODD & _MASK, endpoint)
        for endpoint, load in near
        if load < bound and endpoint.has_prefix_cache
    ]
    return max(free, key=_RANK)[1] if free else None
