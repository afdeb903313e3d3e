"""What a request is expected to take: from its size, and from how long others' answers were."""

from collections.abc import Iterable
from math import gcd

from quire_engine.profiles.output_length import OutputLengthSketch, SketchState, SurvivalCurve
from quire_engine.protocol.cost import HORIZONS, predict_occupancy

BYTES_PER_TOKEN = 4.0
"""Of prompts in JSON: a gateway has no tokenizer. The engine counts exactly, and has the last
word; in languages with shorter tokens a prompt looks smaller here than it is."""


_MAX_KNOWN = 4096


class Expectations:
    """What follows from one estimate of answers' lengths, kept for the next request like it.

    Most requests ask for one of a few limits, and prompts differ by less than they seem to: blocks
    are counted in steps of as many tokens as change anything.
    """

    __slots__ = ("_lengths", "_peaks", "_survival")

    def __init__(self, survival: SurvivalCurve) -> None:
        self._survival = survival
        self._lengths: dict[int, float] = {}
        self._peaks: dict[tuple[int, int, int, int, int], float] = {}

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
    ) -> float:
        """Return the largest number of blocks that is expected to be held at once.

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
            known = self._peaks[key] = predict_occupancy(
                private_tokens=tokens,
                block_size=block_size,
                num_generated=0,
                max_remaining_tokens=max_tokens,
                survival=self._survival.survival,
                fixed_blocks=shared,
                num_sequences=num_sequences,
            ).peak
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
    ) -> None:
        self.num_prompt_tokens = num_prompt_tokens
        self.max_tokens = max_tokens
        self.num_sequences = num_sequences
        self.is_background = is_background
        self.chunks = chunks
        self.deadline_seconds = deadline_seconds
        known = survival if isinstance(survival, Expectations) else Expectations(survival)
        self._expectations = known
        self.num_output_tokens = known.mean_length(max_tokens)
        """Expected length of an answer."""
        self._blocks: dict[int, float] = {}

    def blocks(self, block_size: int) -> float:
        """Return the largest number of blocks that it is expected to hold at once."""
        known = self._blocks.get(block_size)
        if known is None:
            shared = (self.num_prompt_tokens // block_size) if self.num_sequences > 1 else 0
            known = self._blocks[block_size] = self._expectations.peak_blocks(
                self.num_prompt_tokens - shared * block_size,
                self.max_tokens,
                block_size,
                shared,
                self.num_sequences,
            )
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
