"""When refused requests are to come back: one after the other, not all at the first free moment.

Each refusal alone is told when there is room for it. Two hundred at once would all be told the
same, come back together, and find room for a few. So each is given a turn behind those that were
refused before it, as far apart as the engine gives blocks back:

    now ────► room ──── turn ──── turn ──── turn ────►
              │ 1st     │ 2nd     │ 3rd     │ 4th refused

Those that never come back leave a gap that whoever asks meanwhile can take. Nobody is told to stay
away for longer than a minute: once the turns of a minute are given away they are given a second
time, from the first on, for under an overload that lasts so long most are given in vain.
"""

from math import isfinite

from quire_engine.protocol.cost import tokens_until_given
from quire_engine.protocol.messages import Priority
from quire_engine.scheduler.admission import MAX_RETRY_SECONDS
from quire_engine.scheduler.request import Request
from quire_engine.scheduler.scheduler import Scheduler

LATEST_TURN_SECONDS = MAX_RETRY_SECONDS / 1.2
"""Servers add up to a fifth to what clients are told, and never tell more than a minute."""


class ReturnTurns:
    """Spreads the times at which refused requests come back."""

    __slots__ = ("_next_at",)

    def __init__(self) -> None:
        self._next_at = 0.0

    def assign(self, now: float, seconds_until_room: float, turn_seconds: float) -> float:
        """Return in how many seconds a request refused now is to come back.

        Parameters
        ----------
        seconds_until_room
            When it would find room if it were the only one to come back.
        turn_seconds
            How long the engine takes to give back what it needs.
        """
        room_at = now + min(seconds_until_room, LATEST_TURN_SECONDS)
        turn_at = max(self._next_at, room_at)
        if turn_at > now + LATEST_TURN_SECONDS:
            turn_at = room_at
        self._next_at = turn_at + turn_seconds
        return turn_at - now


def predict_turn(scheduler: Scheduler, request: Request) -> float:
    """Return how many seconds a full engine takes to give back what this request needs.

    From the requests that run and wait, as if as many of them ran as there is room for. 0 while
    nothing is known.
    """
    ledger, limits = scheduler.ledger, scheduler.admission.limits
    load = ledger.curve(0)
    for priority in Priority:
        load = load.plus(ledger.queued[priority])
    num_blocks = limits.admission * scheduler.blocks.pool.num_total
    blocks_share = max(load.mean[0] / num_blocks, 1.0)
    seats_share = max(load.alive[0] / scheduler.max_num_seqs, 1.0)
    needed = ledger.predict(request).peak
    num_tokens = max(
        blocks_share * tokens_until_given(load.mean, needed),
        seats_share * tokens_until_given(load.alive, 1.0),
    )
    num_running = load.alive[0] / max(blocks_share, seats_share)
    context_tokens = min(load.mean[0], num_blocks) * scheduler.blocks.block_size
    seconds = num_tokens * scheduler.pace.seconds_per_token(num_running, context_tokens)
    return seconds if isfinite(seconds) else 0.0
