"""Which steps have a CUDA graph: decodes by their number, steps with prompts by their tokens.

A step takes the narrowest graph that holds it. Launching a step with prompts kernel by kernel takes
the host 3 to 11 ms, however few its tokens, and computing them takes the device that long only from
some hundred (8B) or thousand tokens (0.6B) on: up to there they have graphs. Beyond, padding would
cost more than launching, so that only steps of a round number of tokens have one.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from quire_engine.models.config import ModelSpec

_SMALL = (1, 2, 4, 8)
_STEP, _WIDE_FROM, _WIDE_STEP = 8, 256, 32


def graph_widths(max_num_seqs: int) -> tuple[int, ...]:
    """Return the widths, ascending: 1, 2, 4, then steps of 8 to 256, then of 32.

    The last one is `max_num_seqs` itself: every decode step fits a graph.
    """
    wide = range(_WIDE_FROM + _WIDE_STEP, max_num_seqs, _WIDE_STEP)
    widths = {*_SMALL, *range(2 * _STEP, _WIDE_FROM + 1, _STEP), *wide}
    return (*sorted(width for width in widths if width < max_num_seqs), max_num_seqs)


def first_widths(widths: tuple[int, ...]) -> tuple[int, ...]:
    """Return those captured before the engine is ready, the widest first.

    The widest takes the most memory, which the others then share; it also serves every batch
    until its own graph is there. One row is what an idle engine's first request needs.
    """
    return tuple(dict.fromkeys((widths[-1], *(w for w in (1, 8) if w in widths))))


def width_for(widths: Iterable[int], num_rows: int) -> int | None:
    """Return the narrowest of some widths that holds `num_rows`, or None."""
    ordered = sorted(widths)
    index = bisect_left(ordered, num_rows)
    return ordered[index] if index < len(ordered) else None


MAX_PROMPTS = 16
"""Prompts of a step that runs from a graph."""
_TOKENS = (64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
_DECODES = (0, 16, 64, 128, 256)
_HOST_BOUND = 1.2e11
"""Tokens x weights of a layer up to which an H100 waits for a slow host to launch its kernels."""
_MAX_EXACT = 2048
"""Most tokens of a graph that takes no fewer: what it keeps of memory grows with them."""


@dataclass(frozen=True, slots=True)
class PromptShape:
    """What steps with prompts are padded to."""

    num_tokens: int
    """Tokens of decodes and prompts, at least `num_decodes`."""
    num_decodes: int

    @property
    def num_seqs(self) -> int:
        """Entries of the arrays of sequences, and of samples."""
        return self.num_decodes + MAX_PROMPTS


class PromptShapes:
    """The shapes that an engine may have graphs of.

    Parameters
    ----------
    max_num_seqs, max_num_tokens
        Most sequences and tokens of a step.
    has_graphs
        False: there is no shape at all.
    """

    def __init__(
        self, spec: ModelSpec, *, max_num_seqs: int, max_num_tokens: int, has_graphs: bool = True
    ) -> None:
        self._padded = int(_HOST_BOUND / weights_per_layer(spec))
        """Most tokens that a step may be padded to."""
        most = width_for(_TOKENS, max_num_tokens) or max_num_tokens
        reach = min(most, max(self._padded, _MAX_EXACT)) if has_graphs else 0
        self.tokens = tuple(tokens for tokens in _TOKENS if tokens <= reach)
        self.decodes = (*(n for n in _DECODES if n < max_num_seqs), max_num_seqs)

    @property
    def padded_tokens(self) -> tuple[int, ...]:
        """The numbers of tokens that steps of any number up to the last are padded to."""
        return tuple(tokens for tokens in self.tokens if tokens <= self._padded)

    @property
    def widest(self) -> PromptShape | None:
        """What holds most of both; None if there is no shape at all."""
        fitting = [n for n in self.decodes if self.tokens and n <= self.tokens[-1]]
        return PromptShape(self.tokens[-1], fitting[-1]) if fitting else None

    def find(self, num_tokens: int, num_decodes: int, num_prompts: int) -> PromptShape | None:
        """Return the narrowest that holds a step; None if it is to run kernel by kernel.

        Parameters
        ----------
        num_tokens
            Of decodes and prompts.
        """
        width = width_for(self.decodes, num_decodes)
        if width is None or num_prompts > MAX_PROMPTS:
            return None
        tokens = width_for(self.tokens, max(num_tokens, width))
        if tokens is None or (tokens > self._padded and tokens != num_tokens):
            return None
        return PromptShape(tokens, width)

    def all(self) -> list[PromptShape]:
        """Return every shape, the largest first."""
        return [
            PromptShape(tokens, decodes)
            for tokens in reversed(self.tokens)
            for decodes in reversed(self.decodes)
            if decodes <= tokens
        ]


def weights_per_layer(spec: ModelSpec) -> int:
    """Return the weights of one layer's products."""
    heads = spec.num_heads + 2 * spec.num_kv_heads
    attention = (heads + spec.num_heads) * spec.head_dim * spec.hidden_size
    return attention + 3 * spec.hidden_size * spec.intermediate_size
