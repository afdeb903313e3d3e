"""Which steps to measure: enough to tell apart everything that a step-time model has a term for.

    decodes     batch (powers of 4, and the largest) x context (64, 512, 4096, and the most)
    prompts     tokens (powers of 4, and the most), from an empty cache; some in pieces
    chunks      prompts that go on from half of the longest context
    mixed       prompts beside decodes

Contexts of decodes are spread around their mean, as those of requests are: where all are the same,
a device has them done at the same time, and steps are 5 to 20 % shorter than a server's.

Sorted by work, so that what there is no time for is the largest. The sizes in between come after
all of these, for devices that are fast enough.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from quire_engine.profiles.step_time import count_pairs
from quire_engine.protocol.messages import ModelFacts

MAX_STEPS_PER_VISIT = 16
"""Tokens that a decode may grow by while it is measured."""
_FIRST_CONTEXT, _CONTEXT_RATIO = 64, 8
_FIRST_PROMPT, _PROMPT_RATIO = 16, 4
_CONTEXT_WORK = 1 / 512
"""Of reading the KV of one token, in tokens computed: roughly, to sort by."""
_SPREAD = 3 / 4
"""Of the mean context: how far the shortest and the longest are from it."""
_SHUFFLE = 7919
"""A prime: long contexts come between short ones."""
_MIN_RATIO = 1.5
"""A largest value closer to the last regular one tells nothing new."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One kind of step."""

    num_decodes: int = 0
    context: int = 0
    """Tokens whose KV each decode reads in the mean, its own included, in the first step."""
    prompts: tuple[tuple[int, int], ...] = ()
    """(first position, tokens) of each prompt's chunk."""
    spread: int = 0
    """How far the decodes' contexts lie from their mean, evenly from the least to the most."""

    @property
    def contexts(self) -> list[int]:
        """Of each decode, in the first step."""
        last = max(self.num_decodes - 1, 1)
        least, width = self.context - self.spread, 2 * self.spread
        return [
            least + width * (i * _SHUFFLE % (last + 1)) // last for i in range(self.num_decodes)
        ]

    def context_tokens(self, step: int) -> int:
        """Tokens whose KV all decodes together read after so many steps."""
        return sum(self.contexts) + self.num_decodes * step

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens of a step."""
        return sum(count for _, count in self.prompts)

    @property
    def prefill_pairs(self) -> int:
        """Pairs of them and what they attend to."""
        return sum(count_pairs(start, count) for start, count in self.prompts)

    @property
    def num_rows(self) -> int:
        """Rows that a step takes."""
        return self.num_decodes + len(self.prompts)

    @property
    def work(self) -> float:
        """Roughly in tokens computed; more work takes longer, within a factor of the ratio."""
        context = self.num_decodes * self.context + self.prefill_pairs
        return self.num_decodes + self.prefill_tokens + _CONTEXT_WORK * context

    @property
    def longest(self) -> int:
        """Tokens of the longest row before its last step."""
        decodes = [context + MAX_STEPS_PER_VISIT - 1 for context in self.contexts]
        return max([*decodes, *(start + count for start, count in self.prompts)])

    def num_blocks(self, block_size: int) -> int:
        """KV blocks that it needs."""
        ends = [context + MAX_STEPS_PER_VISIT for context in self.contexts]
        ends += [start + count for start, count in self.prompts]
        return sum(-(-end // block_size) for end in ends)


def decode_trial(
    num_decodes: int, context: int, longest: int, prompts: tuple[tuple[int, int], ...] = ()
) -> Trial:
    """Decodes of this mean context, spread as far as `longest` allows, with prompts or without."""
    spread = min(int(_SPREAD * context), max(longest - context, 0)) if num_decodes > 1 else 0
    return Trial(num_decodes, context, prompts, spread)


def choose_trials(
    facts: ModelFacts, *, max_num_seqs: int, max_num_batched_tokens: int
) -> list[Trial]:
    """All trials that the engine can hold: by rising work, and then those in between.

    The smallest step of decodes and the smallest of prompts come before all others.
    """
    longest = max(facts.max_model_len - MAX_STEPS_PER_VISIT, 1)

    def fits(trial: Trial) -> bool:
        return (
            trial.num_rows <= max_num_seqs
            and trial.num_decodes + trial.prefill_tokens <= max_num_batched_tokens
            and trial.num_blocks(facts.block_size) <= facts.num_blocks
            and trial.longest < facts.max_model_len
        )

    coarse = {
        *_decodes(facts, max_num_seqs, longest),
        *_prompts(max_num_seqs, max_num_batched_tokens, longest),
        *_mixed(max_num_seqs, max_num_batched_tokens, longest),
    }
    between = {
        *_decodes(facts, max_num_seqs, longest, first_batch=2),
        *_decodes(facts, max_num_seqs, longest, first_context=3 * _FIRST_CONTEXT),
        *_prompts(max_num_seqs, max_num_batched_tokens, longest, first=2 * _FIRST_PROMPT),
    } - coarse
    ordered = sorted(filter(fits, coarse), key=_order)
    decodes = [trial for trial in ordered if not trial.prompts]
    prompts = [trial for trial in ordered if not trial.num_decodes]
    # without either of these there is no model
    first = [*decodes[:1], *prompts[:1]]
    return [
        *first,
        *(trial for trial in ordered if trial not in first),
        *sorted(filter(fits, between), key=_order),
    ]


def _order(trial: Trial) -> tuple[float, int, tuple[tuple[int, int], ...]]:
    return trial.work, trial.num_decodes, trial.prompts


def _decodes(
    facts: ModelFacts,
    max_num_seqs: int,
    longest: int,
    *,
    first_batch: int = 1,
    first_context: int = _FIRST_CONTEXT,
) -> Iterator[Trial]:
    for num_decodes in _ladder(first_batch, 4, max_num_seqs):
        blocks_each = facts.num_blocks // num_decodes
        if num_decodes > 1 and blocks_each > 1:
            blocks_each -= 1  # contexts that are spread begin a block more each
        most = min(blocks_each * facts.block_size - MAX_STEPS_PER_VISIT, longest)
        for context in _ladder(first_context, _CONTEXT_RATIO, most):
            yield decode_trial(num_decodes, context, longest)


def _prompts(
    max_num_seqs: int, most_tokens: int, longest: int, *, first: int = _FIRST_PROMPT
) -> Iterator[Trial]:
    for tokens in _ladder(first, _PROMPT_RATIO, most_tokens):
        yield Trial(prompts=_pieces(tokens, -(-tokens // longest)))
        yield Trial(prompts=_pieces(tokens, min(tokens // 64, max_num_seqs, 16)))
    half = longest // 2
    for tokens in _ladder(4 * first, _PROMPT_RATIO, min(most_tokens, half)):
        yield Trial(prompts=((half, tokens),))


def _mixed(max_num_seqs: int, most_tokens: int, longest: int) -> Iterator[Trial]:
    context = min(8 * _FIRST_CONTEXT, longest)
    for num_decodes in (1, max_num_seqs // 8, max_num_seqs // 2, max_num_seqs - 1):
        for tokens in _ladder(4 * _FIRST_PROMPT, 8, most_tokens - num_decodes):
            if num_decodes > 0:
                pieces = _pieces(tokens, -(-tokens // longest))
                yield decode_trial(num_decodes, context, longest, pieces)


def _pieces(tokens: int, count: int) -> tuple[tuple[int, int], ...]:
    """Cut so many tokens into prompts of about the same length."""
    count = max(count, 1)
    return tuple((0, tokens * (i + 1) // count - tokens * i // count) for i in range(count))


def _ladder(first: int, ratio: int, most: int) -> list[int]:
    """`first`, times `ratio` again and again, and the most, unless that is close to the last."""
    if most < 1:
        return []
    values = [min(first, most)]
    while values[-1] * ratio <= most:
        values.append(values[-1] * ratio)
    if most >= _MIN_RATIO * values[-1]:
        values.append(most)
    return values
