"""What the gateway decides, measured without connections: a choice, and the index of prefixes."""

import random
import time
import tracemalloc
from collections import deque

from benchmarks.gateway_upstream import state
from quire_engine.protocol.state import PrefixChunkLog
from quire_gateway.choosing.choose import choose
from quire_gateway.choosing.demand import Demand, Expectations, merge_lengths
from quire_gateway.choosing.endpoint import Endpoint
from quire_gateway.choosing.prefix_index import Event, PrefixIndex

_NUM_DECISIONS = 2000
_NUM_FLYING = 400
_CHUNKS_PER_ENGINE = 4096
_NUM_PROMPT_CHUNKS = 8


def decision_us(num_endpoints: int = 100) -> float:
    """Microseconds of a decision, with all that is computed for it; the best of nine rounds.

    Predicted, chosen, counted at the engine, and counted off again when so many are on their way.
    """
    chance = random.Random(0)
    endpoints = [_endpoint(slot) for slot in range(num_endpoints)]
    known = Expectations(merge_lengths([]))
    flying: deque[tuple[Endpoint, int]] = deque()
    best, counter = float("inf"), 0
    for _ in range(9):
        sizes = [chance.randrange(100, 4000) for _ in range(_NUM_DECISIONS)]
        started_at = time.process_time()
        for size in sizes:
            counter += 1
            demand = Demand(
                num_prompt_tokens=size, max_tokens=512, survival=known, chunks=(size, counter)
            )
            chosen = choose(endpoints, demand, {}, now=1.0, chance=chance.random)
            assert chosen is not None
            chosen.take(counter, demand, 0, size, 0.0)
            flying.append((chosen, counter))
            if len(flying) > _NUM_FLYING:
                endpoint, oldest = flying.popleft()
                endpoint.end(oldest)
        best = min(best, time.process_time() - started_at)
    return 1e6 * best / _NUM_DECISIONS


def prefix_index(num_chunks: int = 1_000_000) -> dict[str, float]:
    """Megabytes of an index of so many chunks, and microseconds of looking a prompt up."""
    chance = random.Random(1)
    tracemalloc.start()
    index, names = PrefixIndex(), []
    for _ in range(-(-num_chunks // _CHUNKS_PER_ENGINE)):
        slot = index.join()
        own = [f"{chance.getrandbits(64):016x}" for _ in range(_CHUNKS_PER_ENGINE)]
        names.append([int(one, 16) for one in own[:_NUM_PROMPT_CHUNKS]])
        events: list[Event] = [("inserted", one) for one in own]
        index.follow(slot, PrefixChunkLog(first_number=0, next_number=len(events), events=events))
        del own, events
    num_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    started_at = time.process_time()
    for prompt in names * 20:
        assert len(index.hits(prompt)) == 1
    seconds = time.process_time() - started_at
    return {
        "prefix_index_chunks": len(index),
        "prefix_index_mb": round(num_bytes / 1e6, 1),
        "prefix_lookup_us": round(1e6 * seconds / (20 * len(names)), 1),
    }


def _endpoint(slot: int) -> Endpoint:
    endpoint = Endpoint(f"10.0.0.{slot}:8000", accelerator="l4", gateway="g", slot=slot)
    endpoint.hear(state(), 0.0)
    endpoint.ready_since = -1000.0
    return endpoint
