"""Seconds and room of one engine, from its last state and what was sent to it since.

They are computed when the state or the load changes, and not for each request: a decision reads a
handful of numbers of each endpoint.
"""

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

from quire_engine.profiles.step_time import StepTimeModel, count_pairs
from quire_engine.protocol.state import EngineState

_CHUNK_TOKENS = 2048
"""A step's prompt tokens are taken to be no more than this: the time per token hardly changes
beyond."""
_MIN_CHUNK_TOKENS = 64
_CONTEXT_BITS = 6
"""Contexts count as equal that differ by no more than 3 %: predictions are not more exact."""
_MAX_KNOWN = 1024


@dataclass(slots=True)
class OwnLoad:
    """What this gateway sent to an engine and the engine's state does not include yet.

    Never changed; not frozen, because that makes making one three times as slow.
    """

    num_requests: int = 0
    num_blocks: float = 0.0
    variance: float = 0.0
    """Of its blocks."""
    num_prompt_tokens: float = 0.0
    num_ended_requests: int = 0
    """Of those that the state includes, how many have ended since."""
    num_ended_blocks: float = 0.0
    num_left_blocks: float = 0.0
    """Of those that the state includes and that are there still."""


@dataclass(slots=True)
class Figures:
    """What decisions need to know of an engine; never changed."""

    block_size: int
    num_blocks: int
    is_empty: bool
    free_blocks: float
    """Below the ceiling of interactive requests."""
    free_background_blocks: float
    z: float
    """So many standard deviations of what comes the engine keeps from its ceiling."""
    num_free_seats: int
    num_requests: int
    """In the engine and on the way to it."""
    queue_seconds: float
    """Until the prompts ahead are through, from when they were counted; see `busy_until`."""
    seconds_per_prompt_token: float
    seconds_per_output_token: float
    """Of a request more."""
    slow_down_seconds: float
    """That one more costs all others together, for each token it generates."""
    meets_step_time: bool
    """Whether tokens come as fast as promised with one more."""


class Speeds(NamedTuple):
    """How fast an engine is with so many requests and so much context."""

    seconds_per_prompt_token: float
    seconds_per_output_token: float
    slow_down_seconds: float


class KnownSpeeds:
    """Speeds that were computed before: the model of step times costs more than all the rest.

    They hold as long as the engine's model, limits and steps are the same.
    """

    __slots__ = ("_holds_for", "_speeds")

    def __init__(self) -> None:
        self._holds_for: object = None
        self._speeds: dict[tuple[int, int], Speeds] = {}

    def find(self, state: EngineState, num_decodes: int, context_tokens: int) -> Speeds:
        """Return the speeds with these decodes and about so much context."""
        holds_for = state.step_time, state.thresholds, state.max_step_tokens
        if self._holds_for != holds_for or len(self._speeds) >= _MAX_KNOWN:
            self._holds_for, self._speeds = holds_for, {}
        bits = max(context_tokens.bit_length() - _CONTEXT_BITS, 0)
        context_tokens = context_tokens >> bits << bits
        speeds = self._speeds.get((num_decodes, context_tokens))
        if speeds is None:
            speeds = _compute_speeds(state, _Pace(state.step_time, num_decodes, context_tokens))
            self._speeds[num_decodes, context_tokens] = speeds
        return speeds


def _compute_speeds(state: EngineState, pace: "_Pace") -> Speeds:
    goal = state.thresholds.slo_time_per_output_token_seconds if state.thresholds else None
    room = (state.max_step_tokens or _CHUNK_TOKENS) - pace.num_decodes
    chunk = min(max(room, _MIN_CHUNK_TOKENS), _CHUNK_TOKENS)
    with_one_more = pace.step_seconds(1)
    return Speeds(
        seconds_per_prompt_token=pace.prompt_seconds(goal, chunk),
        seconds_per_output_token=with_one_more,
        slow_down_seconds=pace.num_decodes * max(with_one_more - pace.step_seconds(0), 0.0),
    )


def compute_figures(state: EngineState, own: OwnLoad, known: KnownSpeeds) -> Figures:
    """Compute an engine's figures."""
    blocks, seats = state.blocks, state.sequences
    limits = state.thresholds
    admission = limits.admission if limits else 1.0
    background = limits.background if limits else admission
    z = state.z or 0.0
    there = float(blocks.reserved + blocks.queued)
    # who has ended leaves to the others what they take: prefixes are shared that nobody here knows
    taken = max(there - own.num_ended_blocks, min(own.num_left_blocks, there)) + own.num_blocks
    taken += z * sqrt(max(own.variance, 0.0))
    num_requests = max(seats.running + seats.waiting + own.num_requests - own.num_ended_requests, 0)
    num_decodes = min(num_requests, seats.slots)
    ahead = state.num_prompt_tokens_ahead
    if ahead is None:  # an engine of before
        ahead = blocks.queued * state.tokens_per_block
    context = state.num_filled_tokens + int(own.num_prompt_tokens)
    goal = limits.slo_time_per_output_token_seconds if limits else None
    per_token, with_one_more, slow_down = known.find(state, num_decodes, context)
    return Figures(
        block_size=state.tokens_per_block,
        num_blocks=blocks.total,
        is_empty=num_requests == 0,
        free_blocks=admission * blocks.total - taken + blocks.yielding,
        free_background_blocks=background * blocks.total - taken,
        z=z,
        num_free_seats=seats.slots - num_requests,
        num_requests=num_requests,
        queue_seconds=(ahead + own.num_prompt_tokens) * per_token,
        seconds_per_prompt_token=per_token,
        seconds_per_output_token=with_one_more,
        slow_down_seconds=slow_down,
        meets_step_time=goal is None or with_one_more <= goal,
    )


@dataclass(frozen=True, slots=True)
class _Pace:
    model: StepTimeModel | None
    num_decodes: int
    context_tokens: int

    def step_seconds(self, num_more: int) -> float:
        """Seconds of a step of decodes; 0 while nothing is known."""
        num_decodes = self.num_decodes + num_more
        if self.model is None or num_decodes == 0:
            return 0.0
        mean_context = self.context_tokens // max(self.num_decodes, 1)
        return self.model.predict(num_decodes, self.context_tokens + num_more * mean_context)

    def prompt_seconds(self, goal: float | None, chunk: int) -> float:
        """Seconds for each prompt token beside the decodes.

        Parameters
        ----------
        chunk
            Most prompt tokens of a step.
        goal
            Steps with prompts in them take no longer, if that can be; None for no such wish.
        """
        if self.model is None:
            return 0.0
        seconds = self._mixed_seconds(self.model, chunk)
        while goal is not None and seconds > goal and chunk > _MIN_CHUNK_TOKENS:
            chunk //= 2
            seconds = self._mixed_seconds(self.model, chunk)
        return seconds / chunk

    def _mixed_seconds(self, model: StepTimeModel, chunk: int) -> float:
        return model.predict(self.num_decodes, self.context_tokens, chunk, count_pairs(0, chunk))
