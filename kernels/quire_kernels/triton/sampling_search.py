"""Truncation by passes over the whole vocabulary: flat logits, small vocabularies, large top-k.

The best score of the row is the first candidate. If top-p forbids it, it forbids every token that
is no more likely, so the next candidate is the best score among the more likely ones: the loop ends
at the exact sample after about 1 / top_p candidates. Top-k needs its threshold first: eight pivots
a pass, over values.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc"
from __future__ import annotations

import triton
import triton.language as tl

from quire_kernels.triton.sampling_logits import (
    LANES,
    best_lane,
    better,
    gumbel,
    load_logits,
    penalties_of,
    random_words,
)

PIVOTS: tl.constexpr = tl.constexpr(8)


@triton.jit
def count_above(
    row_logits, vocab_size, counts, allowed, inverse, repeat, often, once, low, step,
    PENALTIES: tl.constexpr, ALLOWED: tl.constexpr,
):  # fmt: skip
    """How many logits reach each of the PIVOTS values `low + step * (i + 1)`."""
    pivot = low + step * (tl.arange(0, PIVOTS) + 1).to(tl.float32)
    reached = tl.zeros((PIVOTS,), tl.int32)
    for start in range(0, vocab_size, LANES):
        token = start + tl.arange(0, LANES)
        x = load_logits(row_logits, token, vocab_size, counts, allowed, inverse, repeat, often,
                        once, PENALTIES, ALLOWED)  # fmt: skip
        reached += tl.sum((x[:, None] >= pivot[None, :]).to(tl.int32), 0)
    return pivot, reached


@triton.jit
def top_k_floor(
    row_logits, vocab_size, counts, allowed, inverse, repeat, often, once, top_k, low, high,
    PENALTIES: tl.constexpr, ALLOWED: tl.constexpr,
):  # fmt: skip
    """A value that the top k logits reach and no other; ties with the k-th stay in."""
    width = high - low
    done = width <= 0.0
    while not done:
        step = width / (PIVOTS + 1)
        pivot, reached = count_above(
            row_logits, vocab_size, counts, allowed, inverse, repeat, often, once, low, step,
            PENALTIES, ALLOWED,
        )  # fmt: skip
        enough = reached >= top_k
        new_low = tl.maximum(low, tl.max(tl.where(enough, pivot, float("-inf")), 0))
        new_high = tl.minimum(high, tl.min(tl.where(enough, float("inf"), pivot), 0))
        exact = tl.max((reached == top_k).to(tl.int32), 0) == 1
        stuck = (new_low == low) & (new_high == high)
        low = new_low
        high = new_high
        width = high - low
        done = exact | stuck | (width <= 2e-7 * tl.maximum(tl.abs(low), tl.abs(high)))
    return low


@triton.jit
def scan_row(
    row_logits, vocab_size, counts, allowed, inverse, repeat, often, once, seed, position,
    floor, strict, peak,
    PENALTIES: tl.constexpr, ALLOWED: tl.constexpr,
):  # fmt: skip
    """Mass and best score of the row's logits at or above `floor` (above it when `strict`)."""
    best = tl.full((LANES,), float("-inf"), tl.float32)
    best_token = tl.zeros((LANES,), tl.int32)
    best_logit = tl.full((LANES,), float("-inf"), tl.float32)
    mass = tl.zeros((LANES,), tl.float32)
    for group in range(tl.cdiv(vocab_size, 4 * LANES)):
        words = random_words(seed, position, group)
        for j in tl.static_range(4):
            token = (group * 4 + j) * LANES + tl.arange(0, LANES)
            x = load_logits(row_logits, token, vocab_size, counts, allowed, inverse, repeat,
                            often, once, PENALTIES, ALLOWED)  # fmt: skip
            inside = (x > floor) | ((x == floor) & (strict == 0))
            mass += tl.where(inside, tl.exp(x - peak), 0.0)
            score = tl.where(inside, x + gumbel(words[j]), float("-inf"))
            best_logit = tl.where(score > best, x, best_logit)
            best, best_token = better(best, best_token, score, token)
    top, winner = best_lane(best, best_token)
    mine = (best == top) & (best_token == winner)
    return tl.sum(mass, 0), winner, tl.max(tl.where(mine, best_logit, float("-inf")), 0)


@triton.jit
def mass_above(
    row_logits, vocab_size, counts, allowed, inverse, repeat, often, once, limit, peak,
    PENALTIES: tl.constexpr, ALLOWED: tl.constexpr,
):  # fmt: skip
    """Softmax mass, relative to `peak`, of the tokens more likely than `limit`: no noise needed."""
    mass = tl.zeros((4 * LANES,), tl.float32)
    for start in range(0, vocab_size, 4 * LANES):
        token = start + tl.arange(0, 4 * LANES)
        x = load_logits(row_logits, token, vocab_size, counts, allowed, inverse, repeat, often,
                        once, PENALTIES, ALLOWED)  # fmt: skip
        mass += tl.where(x > limit, tl.exp(x - peak), 0.0)
    return tl.sum(mass, 0)


@triton.jit(do_not_specialize=["num_chunks"])
def search_kernel(
    logits, temperature, top_k, top_p, min_p, seeds, positions, repetition, frequency, presence,
    counts, count_rows, allowed, chunk_max, chunk_min, chunk_sum, settled, out,
    vocab_size, num_chunks, logits_stride, counts_stride, allowed_stride,
    BLOCK_CHUNKS: tl.constexpr, PENALTIES: tl.constexpr, ALLOWED: tl.constexpr,
):  # fmt: skip
    """Grid (num_rows,): the rows that are not settled yet."""
    row = tl.program_id(0).to(tl.int64)
    if tl.load(settled + row) == 0:
        chunk = tl.arange(0, BLOCK_CHUNKS)
        live = chunk < num_chunks
        at = row * num_chunks + chunk
        peak = tl.max(tl.load(chunk_max + at, mask=live, other=float("-inf")), 0)
        least = tl.min(tl.load(chunk_min + at, mask=live, other=float("inf")), 0)
        row_logits = logits + row * logits_stride
        row_allowed = allowed + row * allowed_stride
        inverse = 1.0 / tl.load(temperature + row)
        seed = tl.load(seeds + row)
        position = tl.load(positions + row)
        row_counts, repeat, often, once = penalties_of(
            repetition, frequency, presence, counts, count_rows, counts_stride, row, PENALTIES
        )
        k = tl.load(top_k + row)
        p = tl.load(top_p + row)
        floor = least
        share = tl.load(min_p + row)
        if share > 0.0:
            floor = tl.maximum(floor, peak + tl.log(share))
        if (k > 0) & (k < vocab_size):
            floor = tl.maximum(floor, top_k_floor(
                row_logits, vocab_size, row_counts, row_allowed, inverse, repeat, often,
                once, k, least, peak, PENALTIES, ALLOWED,
            ))  # fmt: skip
        # The whole row's best score is known already; a floor asks for the best above it.
        winner = tl.load(out + row)
        logit = load_logits(row_logits, winner, vocab_size, row_counts, row_allowed, inverse,
                            repeat, often, once, PENALTIES, ALLOWED)  # fmt: skip
        tops = tl.load(chunk_max + at, mask=live, other=float("-inf"))
        sums = tl.load(chunk_sum + at, mask=live, other=0.0)
        total = tl.sum(sums * tl.exp(tops - peak), 0)
        if floor > least:
            total, winner, logit = scan_row(
                row_logits, vocab_size, row_counts, row_allowed, inverse, repeat, often, once,
                seed, position, floor, 0, peak, PENALTIES, ALLOWED,
            )  # fmt: skip
        above = 0.0
        if p < 1.0:
            above = mass_above(row_logits, vocab_size, row_counts, row_allowed, inverse, repeat,
                               often, once, logit, peak, PENALTIES, ALLOWED)  # fmt: skip
        while (above > 0.0) & (above >= p * total):
            _, winner, logit = scan_row(
                row_logits, vocab_size, row_counts, row_allowed, inverse, repeat, often, once,
                seed, position, logit, 1, peak, PENALTIES, ALLOWED,
            )  # fmt: skip
            above = mass_above(row_logits, vocab_size, row_counts, row_allowed, inverse, repeat,
                               often, once, logit, peak, PENALTIES, ALLOWED)  # fmt: skip
        tl.store(out + row, winner)
