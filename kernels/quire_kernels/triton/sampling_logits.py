"""Logits as sampling sees them, and the noise of a token: shared by both sampling kernels.

The vocabulary is walked in groups of 4 x LANES tokens. One Philox call per lane yields four words,
for tokens `group * 4 * LANES + j * LANES + lane`, j = 0..3: the noise of a token depends on (seed,
position, token) alone, however the row is divided among programs.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-any-return"
from __future__ import annotations

import triton
import triton.language as tl

LANES: tl.constexpr = tl.constexpr(1024)
PROMPT_FLAG: tl.constexpr = tl.constexpr(1 << 30)
PHILOX_ROUNDS: tl.constexpr = tl.constexpr(7)
GREEDY_BELOW: tl.constexpr = tl.constexpr(1e-5)


@triton.jit
def load_logits(
    logits, token, vocab_size, counts, allowed, inverse_temperature, repetition, frequency,
    presence, PENALTIES: tl.constexpr, ALLOWED: tl.constexpr,
):  # fmt: skip
    """fp32 logits of one row after mask, penalties and temperature; -inf outside.

    NaN becomes infinity, which wins any row: `join_kernel` sees that the row is not finite.
    """
    live = token < vocab_size
    x = tl.load(logits + token, mask=live, other=float("-inf")).to(tl.float32)
    x = tl.where(x == x, x, float("inf"))
    if ALLOWED:
        word = tl.load(allowed + token // 32, mask=live, other=0)
        x = tl.where((word >> (token % 32)) & 1 == 1, x, float("-inf"))
    if PENALTIES:
        seen = tl.load(counts + token, mask=live, other=0)
        generated = seen & (PROMPT_FLAG - 1)
        x = tl.where(seen != 0, tl.where(x > 0, x / repetition, x * repetition), x)
        x -= frequency * generated.to(tl.float32) + tl.where(generated > 0, presence, 0.0)
    return x * inverse_temperature


@triton.jit
def gumbel(word):
    """Standard Gumbel noise from 32 random bits; exact to 2^-33 in the tail that wins."""
    uniform = (word.to(tl.float32) + 0.5) * 2.3283064365386963e-10
    series = uniform * (1.0 + uniform * (0.5 + uniform * 0.3333333333))
    exponential = tl.where(uniform < 0.015625, series, -tl.log(tl.maximum(1.0 - uniform, 1e-10)))
    return -tl.log(exponential)


@triton.jit
def random_words(seed, position, group):
    """Four blocks of LANES random words for one group of tokens.

    Seven rounds are the fewest that pass BigCrush (Salmon et al., 2011).
    """
    lane = group * LANES + tl.arange(0, LANES)
    zero = lane * 0
    return tl.philox(seed, lane, zero + position, zero, zero, PHILOX_ROUNDS)


@triton.jit
def word_of_token(seed, position, token):
    """The random word of each token, wherever it stands in the vocabulary."""
    counter = (token // (4 * LANES)) * LANES + token % LANES
    zero = counter * 0
    w0, w1, w2, w3 = tl.philox(seed, counter, zero + position, zero, zero, PHILOX_ROUNDS)
    part = (token // LANES) % 4
    return tl.where(part < 2, tl.where(part == 0, w0, w1), tl.where(part == 2, w2, w3))


@triton.jit
def penalties_of(
    repetition, frequency, presence, counts, count_rows, counts_stride, row,
    PENALTIES: tl.constexpr,
):  # fmt: skip
    """Row of the counts, and the three penalties of a row."""
    if PENALTIES:
        row_counts = counts + tl.load(count_rows + row).to(tl.int64) * counts_stride
        return (
            row_counts, tl.load(repetition + row), tl.load(frequency + row), tl.load(presence + row)
        )  # fmt: skip
    else:  # noqa: RET505 - Triton compiles one branch and wants both to return alike
        return counts, 1.0, 0.0, 0.0


@triton.jit
def better(best, best_token, score, token):
    """Per lane, keep the higher score; the earlier token on a tie."""
    wins = score > best
    return tl.where(wins, score, best), tl.where(wins, token, best_token)


@triton.jit
def best_lane(best, best_token):
    """The winning lane of a block: highest score, then lowest token."""
    top = tl.max(best, 0)
    return top, tl.min(tl.where(best == top, best_token, 2147483647), 0)
