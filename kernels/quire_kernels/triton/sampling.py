"""Sampling without sorting the vocabulary: scan every logit once, then work on a short list.

Every token's score is its logit plus Gumbel noise keyed by (seed, position, token), and the highest
score among the allowed tokens is a sample of their softmax. The steps, one kernel each:

    scan     per chunk: best score, maximum, softmax mass; maximum of every 128 tokens
    join     per row: best score of all; a floor under everything that top-k, top-p or min-p keep
    gather   per chunk: the tokens that reach the floor
    choose   per row: exact truncation and sample on that list
    search   rows whose list overflowed or holds too little mass: passes over the vocabulary

Rows without truncation are done after join. This file has the first two.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc"
from __future__ import annotations

import triton
import triton.language as tl

from quire_kernels.triton.dependent import wait_for_inputs
from quire_kernels.triton.sampling_logits import (
    GREEDY_BELOW,
    LANES,
    best_lane,
    better,
    gumbel,
    load_logits,
    penalties_of,
    random_words,
)

SEGMENTS: tl.constexpr = tl.constexpr(32)
TOP_P_LIST: tl.constexpr = tl.constexpr(256)
LARGEST: tl.constexpr = tl.constexpr(3e38)


@triton.jit(do_not_specialize=["num_chunks", "segment_stride"])
def scan_kernel(
    logits, temperature, seeds, positions, repetition, frequency, presence, counts, count_rows,
    allowed, chunk_best, chunk_token, chunk_max, chunk_min, chunk_sum, segment_max,
    vocab_size, num_chunks, logits_stride, counts_stride, allowed_stride, segment_stride,
    GROUPS: tl.constexpr, TRUNCATE: tl.constexpr, PENALTIES: tl.constexpr, ALLOWED: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Grid (num_chunks, num_rows): GROUPS groups of the vocabulary each."""
    wait_for_inputs(DEPENDENT)
    chunk = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    heat = tl.load(temperature + row)
    greedy = heat < GREEDY_BELOW
    inverse = 1.0 / tl.where(greedy, 1.0, heat)
    seed = tl.load(seeds + row)
    position = tl.load(positions + row)
    row_counts, repeat, often, once = penalties_of(
        repetition, frequency, presence, counts, count_rows, counts_stride, row, PENALTIES
    )
    best = tl.full((LANES,), float("-inf"), tl.float32)
    best_token = tl.zeros((LANES,), tl.int32)
    top = tl.full((LANES,), float("-inf"), tl.float32)
    low = tl.full((LANES,), float("inf"), tl.float32)
    mass = tl.zeros((LANES,), tl.float32)
    for step in range(GROUPS):
        group = chunk * GROUPS + step
        group_top = tl.full((LANES,), float("-inf"), tl.float32)
        group_mass = tl.zeros((LANES,), tl.float32)
        words = random_words(seed, position, group)
        for j in tl.static_range(4):
            token = (group * 4 + j) * LANES + tl.arange(0, LANES)
            x = load_logits(
                logits + row * logits_stride, token, vocab_size, row_counts,
                allowed + row * allowed_stride, inverse, repeat, often, once, PENALTIES, ALLOWED,
            )  # fmt: skip
            score = x if greedy else x + gumbel(words[j])
            best, best_token = better(best, best_token, score, token)
            if TRUNCATE:
                x = tl.minimum(x, LARGEST)  # infinity less infinity would be NaN
                low = tl.minimum(low, tl.where(x == float("-inf"), float("inf"), x))
                new_top = tl.maximum(group_top, x)
                shift = tl.where(new_top == float("-inf"), 0.0, new_top)
                # One of the two exponents is zero: a single exponential serves both.
                fade = tl.exp(tl.minimum(group_top, x) - shift)
                grows = x > group_top
                group_mass = tl.where(grows, group_mass * fade + 1.0, group_mass + fade)
                group_mass = tl.where(new_top == float("-inf"), 0.0, group_mass)
                group_top = new_top
        if TRUNCATE:
            by_segment = tl.max(tl.reshape(group_top, (SEGMENTS, LANES // SEGMENTS)), 1)
            segment = row * segment_stride + group * SEGMENTS + tl.arange(0, SEGMENTS)
            tl.store(segment_max + segment, by_segment)
            new_top = tl.maximum(top, group_top)
            shift = tl.where(new_top == float("-inf"), 0.0, new_top)
            mass = mass * tl.exp(top - shift) + group_mass * tl.exp(group_top - shift)
            top = new_top
    score, winner = best_lane(best, best_token)
    at = row * num_chunks + chunk
    tl.store(chunk_best + at, score)
    tl.store(chunk_token + at, winner)
    if TRUNCATE:
        peak = tl.max(top, 0)
        shift = tl.where(peak == float("-inf"), 0.0, peak)
        tl.store(chunk_max + at, peak)
        tl.store(chunk_min + at, tl.min(low, 0))
        tl.store(chunk_sum + at, tl.sum(mass * tl.exp(top - shift), 0))


@triton.jit
def highest_floor(values, count, low, high):
    """A value that at least `count` of `values` reach, and about no more: bisection.

    `low` is finite, and at least `count` of the values reach it.
    """
    done = low >= high
    while not done:
        middle = 0.5 * low + 0.5 * high
        reached = tl.sum((values >= middle).to(tl.int32), 0)
        inside = (middle > low) & (middle < high)
        low = tl.where(reached >= count, middle, low)
        high = tl.where(reached >= count, high, middle)
        done = (reached == count) | (not inside)
    return low


@triton.jit(do_not_specialize=["num_chunks", "num_segments", "segment_stride"])
def join_kernel(
    temperature, top_k, top_p, min_p, chunk_best, chunk_token, segment_max, floors, settled, out,
    num_chunks, num_segments, vocab_size, segment_stride,
    BLOCK_CHUNKS: tl.constexpr, BLOCK_SEGMENTS: tl.constexpr, TRUNCATE: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Grid (num_rows,). Rows that need no truncation are settled here."""
    wait_for_inputs(DEPENDENT)
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.arange(0, BLOCK_CHUNKS)
    live = chunk < num_chunks
    best = tl.load(chunk_best + row * num_chunks + chunk, mask=live, other=float("-inf"))
    token = tl.load(chunk_token + row * num_chunks + chunk, mask=live, other=2147483647)
    score, winner = best_lane(best, token)
    unusable = (score == float("inf")) | (score == float("-inf"))
    tl.store(out + row, tl.where(unusable, -1, winner))
    if TRUNCATE:
        k = tl.load(top_k + row)
        p = tl.load(top_p + row)
        share = tl.load(min_p + row)
        by_count = (k > 0) & (k < vocab_size)
        free = (p >= 1.0) & (share <= 0.0) & (not by_count)
        segment = tl.arange(0, BLOCK_SEGMENTS)
        tops = tl.load(
            segment_max + row * segment_stride + segment, mask=segment < num_segments,
            other=float("-inf"),
        )  # fmt: skip
        peak = tl.max(tops, 0)
        done = free | unusable | (tl.load(temperature + row) < GREEDY_BELOW)
        floor = float("inf")
        if not done:
            least = tl.min(tl.where(tops == float("-inf"), float("inf"), tops), 0)
            # At least `wanted` tokens reach what `wanted` segment maxima reach.
            wanted = tl.where(by_count, k, TOP_P_LIST)
            enough = tl.sum((tops > float("-inf")).to(tl.int32), 0) >= wanted
            floor = float("-inf")
            if enough & (by_count | (p < 1.0)):
                floor = highest_floor(tops, wanted, least, peak)
            if share > 0.0:
                floor = tl.maximum(floor, peak + tl.log(share))
        tl.store(floors + row, floor)
        tl.store(settled + row, done.to(tl.int32))
