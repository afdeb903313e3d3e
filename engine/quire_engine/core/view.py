"""Describes a core to people who watch it: its blocks, its requests, never their text."""

from collections.abc import Iterable
from itertools import islice

from quire_engine.core.block_map import draw_block_map
from quire_engine.protocol.block_map import MAX_RUNNING_SHOWN, MAX_WAITING_SHOWN, RequestView
from quire_engine.protocol.messages import BlockCounts, CoreView
from quire_engine.scheduler.request import Request
from quire_engine.scheduler.scheduler import Scheduler


def describe_core(scheduler: Scheduler, blocks: BlockCounts, executor: str, now: float) -> CoreView:
    """Return the core as it is between two steps, without the feed's own measurements.

    Parameters
    ----------
    executor
        What computes, in words.
    now
        Seconds of the clock that requests arrived by.
    """
    running, counters = list(scheduler.running), scheduler.counters
    shown = running[:MAX_RUNNING_SHOWN]
    tables = [request.table.blocks for request in running]
    return CoreView(
        seconds=now,
        executor=executor,
        blocks=blocks,
        map=draw_block_map(
            scheduler.blocks.pool,
            tables[: len(shown)],
            tables[len(shown) :],
            num_promised=blocks.reserved - blocks.held,
        ),
        requests=_describe_all((*shown, *islice(scheduler.waiting, MAX_WAITING_SHOWN)), now),
        num_running=len(running),
        num_waiting=len(scheduler.waiting),
        num_prefill_tokens=counters.num_scheduled_tokens - counters.num_decode_tokens,
        num_decode_tokens=counters.num_decode_tokens,
        num_prefix_queries=counters.num_prefix_queries,
        num_prefix_hits=counters.num_prefix_hits,
    )


def _describe_all(requests: Iterable[Request], now: float) -> list[RequestView]:
    return [_describe(request, now) for request in requests]


def _describe(request: Request, now: float) -> RequestView:
    _, arrived_at, number = request.seniority
    age_seconds = max(now - arrived_at, 0.0)
    queue_seconds = request.queue_seconds
    return RequestView(
        id=request.request_id.removeprefix(f"{request.client_id}-"),
        number=number,
        priority=request.priority.name.lower(),
        phase=_phase_of(request),
        num_prompt_tokens=request.num_prompt_tokens,
        num_tokens=len(request.token_ids),
        num_computed_tokens=request.num_computed_tokens,
        max_tokens=request.max_length,
        num_blocks=len(request.table.blocks),
        num_cached_tokens=request.num_cached_tokens,
        queue_seconds=age_seconds if queue_seconds is None else queue_seconds,
        age_seconds=age_seconds,
    )


def _phase_of(request: Request) -> str:
    if request.row is None:
        return "preempted" if request.num_preemptions else "waiting"
    # a token that is known but not computed is the newest one: the request decodes
    return "decode" if request.num_missing_tokens <= 1 else "prefill"
