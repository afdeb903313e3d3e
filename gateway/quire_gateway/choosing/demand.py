"""What a request is expected to take: from its size, and from how long others' answers were."""

from collections.abc import Iterable
from math import gcd, sqrt

from quire_engine.profiles.output_length import OutputLengthSketch, SketchState, SurvivalCurve
from quire_engine.protocol.cost import HORIZONS, predict_occupancy

BYTES_PER_TOKEN = 4.0
"""Of prompts in JSON: a gateway has no tokenizer. The engine counts exactly, and has the last
word; in languages with shorter tokens a prompt looks smaller here than it is."""


_MAX_KNOWN = 4096
_Z = 1.5
"""Deviations are told for engines that keep about so many from their ceiling: they begin so."""


class Expectations:
    """What follows from one estimate of answers' lengths, kept for the next request like it.

    Most requests ask for one of a few limits, and prompts differ by less than they seem to: blocks
    are counted in steps of as many tokens as change anything.
    """

    __slots__ = ("_lengths", "_peaks", "_survival")

    def __init__(self, survival: SurvivalCurve) -> None:
        self._survival = survival
        self._lengths: dict[int, float] = {}
        self._peaks: dict[tuple[int, int, int, int, int], tuple[float, float]] = {}

    def mean_length(self, max_tokens: int) -> float:
        """See `expect_tokens`."""
        known = self._lengths.get(max_tokens)
        if known is None:
            if len(self._lengths) >= _MAX_KNOWN:
                self._lengths.clear()
            known = self._lengths[max_tokens] = expect_tokens(self._survival, max_tokens)
        return known

    def peak_blocks(
        self, num_tokens: int, max_tokens: int, block_size: int, shared: int, num_sequences: int
    ) -> tuple[float, float]:
        """Return the largest number of blocks that is expected at once, and its deviation.

        Engines keep a few standard deviations from their ceiling. The second number is what each
        of them adds to the first.

        Parameters
        ----------
        num_tokens
            Of each sequence's own prompt.
        shared
            Blocks that all sequences have together.
        """
        step = gcd(block_size, HORIZONS[1])
        tokens = -(-num_tokens // step) * step
        key = (tokens, max_tokens, block_size, shared, num_sequences)
        known = self._peaks.get(key)
        if known is None:
            if len(self._peaks) >= _MAX_KNOWN:
                self._peaks.clear()
            occupancy = predict_occupancy(
                private_tokens=tokens,
                block_size=block_size,
                num_generated=0,
                max_remaining_tokens=max_tokens,
                survival=self._survival.survival,
                fixed_blocks=shared,
                num_sequences=num_sequences,
            )
            pairs = zip(occupancy.mean, occupancy.variance, strict=True)
            upper = max(mean + _Z * sqrt(max(variance, 0.0)) for mean, variance in pairs)
            known = self._peaks[key] = occupancy.peak, (upper - occupancy.peak) / _Z
        return known


class Demand:
    """One request's predicted cost.

    Parameters
    ----------
    num_prompt_tokens
        Estimated.
    max_tokens
        Tokens after which an answer ends in any case.
    num_sequences
        Answers, or beams, that grow side by side.
    chunks
        Names of the prompt's parts.
    deadline_seconds
        By this moment of the gateway's clock the first token is due; None for whenever.
    prompt_error
        By what share of its length the prompt is likely to be longer or shorter than estimated.
    """

    __slots__ = (
        "_blocks",
        "_expectations",
        "chunks",
        "deadline_seconds",
        "is_background",
        "max_tokens",
        "num_output_tokens",
        "num_prompt_tokens",
        "num_sequences",
        "prompt_error",
    )

    def __init__(
        self,
        *,
        num_prompt_tokens: int,
        max_tokens: int,
        survival: SurvivalCurve | Expectations,
        num_sequences: int = 1,
        is_background: bool = False,
        chunks: tuple[int, ...] = (),
        deadline_seconds: float | None = None,
        prompt_error: float = 0.0,
    ) -> None:
        self.num_prompt_tokens = num_prompt_tokens
        self.max_tokens = max_tokens
        self.num_sequences = num_sequences
        self.is_background = is_background
        self.chunks = chunks
        self.deadline_seconds = deadline_seconds
        self.prompt_error = prompt_error
        known = survival if isinstance(survival, Expectations) else Expectations(survival)
        self._expectations = known
        self.num_output_tokens = known.mean_length(max_tokens)
        """Expected length of an answer."""
        self._blocks: dict[int, tuple[float, float]] = {}

    def count_prompt(self, num_prompt_tokens: int) -> None:
        """Its prompt was counted: it is as long as this."""
        self.num_prompt_tokens, self.prompt_error = num_prompt_tokens, 0.0
        self._blocks.clear()

    def blocks(self, block_size: int) -> float:
        """Return the largest number of blocks that it is expected to hold at once."""
        return self.blocks_and_deviation(block_size)[0]

    def blocks_and_deviation(self, block_size: int) -> tuple[float, float]:
        """See `Expectations.peak_blocks`; the prompt's length scatters, too."""
        known = self._blocks.get(block_size)
        if known is None:
            shared = (self.num_prompt_tokens // block_size) if self.num_sequences > 1 else 0
            peak, deviation = self._expectations.peak_blocks(
                self.num_prompt_tokens - shared * block_size,
                self.max_tokens,
                block_size,
                shared,
                self.num_sequences,
            )
            if self.prompt_error:
                error = self.prompt_error * self.num_prompt_tokens / block_size
                deviation = sqrt(deviation * deviation + error * error)
            known = self._blocks[block_size] = peak, deviation
        return known


def expect_tokens(survival: SurvivalCurve, max_tokens: int) -> float:
    """Return the mean length of an answer that ends at max_tokens at the latest.

    The survival's integral, with straight lines between the horizons of occupancy.
    """
    total, alive, last = 0.0, 1.0, 0
    for ahead in (*HORIZONS[1:], max_tokens):
        at = min(ahead, max_tokens)
        still = survival.longer_than(at)
        total += (at - last) * (alive + still) / 2
        if at == max_tokens:
            break
        alive, last = still, at
    return total


def merge_lengths(states: Iterable[SketchState | None]) -> SurvivalCurve:
    """Return one estimate from what several engines have seen; a prior if none has."""
    together = OutputLengthSketch()
    for state in states:
        if state is not None:
            together.merge(OutputLengthSketch.from_state(state))
    return together.curve()
