"""What a request is expected to take: from its size, and from how long others' answers were."""

from collections.abc import Iterable

from quire_engine.profiles.output_length import OutputLengthSketch, SketchState, SurvivalCurve
from quire_engine.protocol.cost import HORIZONS, Occupancy, predict_occupancy

BYTES_PER_TOKEN = 4.0
"""Of prompts in JSON: a gateway has no tokenizer. The engine counts exactly, and has the last
word; in languages with shorter tokens a prompt looks smaller here than it is."""


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
        "_survival",
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
        survival: SurvivalCurve,
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
        self.num_output_tokens = expect_tokens(survival, max_tokens)
        """Expected length of an answer."""
        self._survival = survival
        self._blocks: dict[int, float] = {}

    def blocks(self, block_size: int) -> float:
        """Return the largest number of blocks that it is expected to hold at once."""
        known = self._blocks.get(block_size)
        if known is None:
            known = self._blocks[block_size] = self._occupancy(block_size).peak
        return known

    def _occupancy(self, block_size: int) -> Occupancy:
        shared = (self.num_prompt_tokens // block_size) if self.num_sequences > 1 else 0
        return predict_occupancy(
            private_tokens=self.num_prompt_tokens - shared * block_size,
            block_size=block_size,
            num_generated=0,
            max_remaining_tokens=self.max_tokens,
            survival=self._survival.survival,
            fixed_blocks=shared,
            num_sequences=self.num_sequences,
        )


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
