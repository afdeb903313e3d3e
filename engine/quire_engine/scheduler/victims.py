"""Who gives way when no block is free.

The most senior running request is never chosen, and seniority does not change while a request
runs: so that one always goes on, ends after finitely many steps, and leaves the place to the next.
Preemption therefore cannot become a livelock however small the cache is.
"""

from quire_engine.protocol.messages import Priority
from quire_engine.scheduler.queue import SeniorityList
from quire_engine.scheduler.request import Request


def choose_victim(running: SeniorityList) -> Request | None:
    """Return the least valuable running request, or None if only one, or one search, runs.

    Background before interactive; then those that made their minimum progress since they came
    back; then the one that loses the fewest computed tokens; then the youngest.
    """
    others = list(running)[1:]
    beams = running[0].beams if len(running) else None
    if beams is not None:
        others = [request for request in others if request.beams is not beams]
    return min(others, key=_value, default=None)


def choose_displaced(running: SeniorityList) -> Request | None:
    """Return the background request that gives its row to an interactive one, or None.

    One that came back a moment ago stays until it made its minimum progress.
    """
    candidates = [
        request
        for request in running
        if request.seniority[0] == Priority.BACKGROUND
        and len(request.token_ids) >= request.progress_to_preempt
    ]
    return min(candidates, key=_value, default=None)


def _value(request: Request) -> tuple[int, bool, int, float, int]:
    level, arrival, number = request.seniority
    return (
        -level,
        len(request.token_ids) < request.progress_to_preempt,
        request.num_computed_tokens,
        -arrival,
        -number,
    )
