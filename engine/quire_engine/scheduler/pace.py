"""How fast the engine will go: what fits into a step, and how soon a prompt will be through."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from quire_engine.profiles.step_time import StepTimeModel, count_pairs
from quire_engine.protocol.messages import Priority

MAX_LEAP = 4
"""A step's prompts may be so many times larger than any the model has seen: beyond, it guesses."""
START_UNIT = 256
"""Tokens that starts of chunks are rounded to in predictions."""
STEP_SHARE = 0.02
"""Weight of the newest step in the mean of observed steps."""


@dataclass(slots=True)
class StepLoad:
    """What a step already has to do."""

    num_decodes: int = 0
    context_tokens: int = 0
    """Tokens whose KV the decodes read."""
    prefill_tokens: int = 0
    background_prefill_tokens: int = 0
    """Those of them that come after the prompts of interactive requests."""
    prefill_pairs: int = 0
    num_lacking_blocks: int = 0
    """Blocks that the running prompts still have to take."""
    num_yielding_decodes: int = 0
    """Those of the decodes that make way for interactive prompts: of background requests."""
    yielding_context_tokens: int = 0

    def decodes(self) -> "StepLoad":
        """Return the decodes alone."""
        return StepLoad(self.num_decodes, self.context_tokens)

    def interactive_decodes(self) -> "StepLoad":
        """Return the decodes that make way for nobody, alone."""
        return StepLoad(
            self.num_decodes - self.num_yielding_decodes,
            self.context_tokens - self.yielding_context_tokens,
        )

    def add_chunk(self, start: int, num_tokens: int) -> None:
        """Count a prompt's chunk."""
        self.prefill_tokens += num_tokens
        self.prefill_pairs += count_pairs(start, num_tokens)


class Pace:
    """Predictions from a step-time model, under a budget of seconds per step.

    Parameters
    ----------
    model
        Predicts a step's seconds; None while nothing is known, then no budget is kept.
    step_seconds_budget
        Steps with prompts in them should take no longer, so that decodes keep their pace; None
        for no such wish.
    min_chunk_tokens
        A prompt gets so many tokens per step even when decodes alone use the budget up: it must
        not starve.
    """

    def __init__(
        self,
        model: StepTimeModel | None,
        *,
        step_seconds_budget: float | None,
        max_num_batched_tokens: int,
        min_chunk_tokens: int = 16,
    ) -> None:
        self.model = model
        self.step_seconds_budget = step_seconds_budget
        self.max_num_batched_tokens = max_num_batched_tokens
        self._min_chunk_tokens = min_chunk_tokens
        self._observed_seconds: float | None = None

    def chunk_limit(self, load: StepLoad, start: int, wanted: int) -> int:
        """Return how many of `wanted` prompt tokens from `start` on still fit into a step."""
        if self.model is None or self.step_seconds_budget is None:
            return wanted
        seen = max(MAX_LEAP * self.model.limits.prefill_tokens, self._min_chunk_tokens)
        wanted = min(wanted, max(seen - load.prefill_tokens, 0))
        if wanted == 0:
            return 0
        if self.seconds_with(load, start, wanted) <= self.step_seconds_budget:
            return wanted
        low, high = 0, wanted  # low fits or is 0, high does not fit
        while high - low > 1:
            middle = (low + high) // 2
            if self.seconds_with(load, start, middle) <= self.step_seconds_budget:
                low = middle
            else:
                high = middle
        if load.prefill_tokens == 0:
            return max(low, min(wanted, self._min_chunk_tokens))
        return low

    def is_spent(self, load: StepLoad) -> bool:
        """Whether a step with prompts in it has no time left for more."""
        return load.prefill_tokens > 0 and self.chunk_limit(load, 0, 1) == 0

    def observe_step(self, seconds: float, num_steps: int = 1) -> None:
        """Learn how far apart steps are: prompts beside the decodes make them longer.

        Parameters
        ----------
        seconds
            Of each step, on average, if there were several.
        """
        if self._observed_seconds is None:
            self._observed_seconds = seconds
        kept = (1.0 - STEP_SHARE) ** num_steps
        self._observed_seconds = kept * self._observed_seconds + (1.0 - kept) * seconds

    def seconds_per_token(self, num_decodes: float, context_tokens: float) -> float:
        """Return how long a running request takes for a token, as things go now."""
        predicted = self.decode_seconds(num_decodes, context_tokens)
        return max(predicted, self._observed_seconds or 0.0)

    def decode_seconds(self, num_decodes: float, context_tokens: float) -> float:
        """Return the seconds of a step of decodes alone; 0 while nothing is known."""
        if self.model is None or num_decodes <= 0:
            return 0.0
        return self.model.predict(round(num_decodes), round(context_tokens))

    def beside(self, load: StepLoad, priority: Priority) -> "PromptPace":
        """Return how fast prompts of a class go beside the decodes of `load`."""
        yields = priority is Priority.INTERACTIVE and self.step_seconds_budget is not None
        return PromptPace(self, load.interactive_decodes() if yields else load.decodes())

    def num_decodes_beside(self, contexts: Sequence[int], num_fixed: int, num_tokens: int) -> int:
        """Return how many decodes fit into a step beside so many prompt tokens.

        Parameters
        ----------
        contexts
            Tokens whose KV each decode reads, the most important first.
        num_fixed
            So many take part in any case.
        """
        budget = self.step_seconds_budget
        if self.model is None or budget is None or num_tokens == 0:
            return len(contexts)
        sums = [0, *accumulate(contexts)]

        def is_too_long(count: int) -> bool:
            return self.seconds_with(StepLoad(count, sums[count]), 0, num_tokens) > budget

        counts = range(num_fixed + 1, len(contexts) + 1)
        return num_fixed + bisect_left(counts, True, key=is_too_long)

    def seconds_with(self, load: StepLoad, start: int, num_tokens: int) -> float:
        """Return how long a step takes that computes so many prompt tokens besides."""
        return self.model.predict(  # type: ignore[union-attr]  # callers looked
            load.num_decodes,
            load.context_tokens,
            load.prefill_tokens + num_tokens,
            load.prefill_pairs + count_pairs(start, num_tokens),
        )


class PromptPace:
    """How fast prompts go beside one load of decodes; cheap to ask for many prompts.

    Prompts are cut into the largest chunks that a step takes. How large that is depends on where
    the chunk starts, which is rounded, so that a long queue asks for few different ones.
    """

    __slots__ = ("_full_steps", "_load", "_pace")

    def __init__(self, pace: Pace, load: StepLoad) -> None:
        self._pace = pace
        self._load = load
        self._full_steps: dict[int, tuple[int, float]] = {}

    def seconds(self, num_tokens: int, mean_start: int) -> float:
        """Return how long prompts of `num_tokens` take; 0 while nothing is known.

        Parameters
        ----------
        mean_start
            Where the prompts' chunks start on average: later ones attend to more.
        """
        if self._pace.model is None or num_tokens <= 0:
            return 0.0
        start = mean_start // START_UNIT * START_UNIT
        chunk, step_seconds = self._full_steps.get(start) or self._measure(start)
        num_steps, rest = divmod(num_tokens, chunk)
        seconds = num_steps * step_seconds
        return seconds + (self._pace.seconds_with(self._load, start, rest) if rest else 0.0)

    def _measure(self, start: int) -> tuple[int, float]:
        """Find the largest chunk that a step takes, and how long that step is."""
        room = self._pace.max_num_batched_tokens - self._load.num_decodes
        chunk = max(self._pace.chunk_limit(self._load, start, room), 1)
        full = (chunk, self._pace.seconds_with(self._load, start, chunk))
        self._full_steps[start] = full
        return full
