"""Truncation and sampling on the few tokens that reach a row's floor."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc"
from __future__ import annotations

import triton
import triton.language as tl

from quire_kernels.triton.sampling import highest_floor
from quire_kernels.triton.sampling_logits import (
    GREEDY_BELOW,
    LANES,
    best_lane,
    gumbel,
    load_logits,
    penalties_of,
    word_of_token,
)


@triton.jit(do_not_specialize=["num_chunks"])
def gather_kernel(
    logits, temperature, repetition, frequency, presence, counts, count_rows, allowed,
    chunk_max, floors, listed, list_logit, list_token,
    vocab_size, num_chunks, logits_stride, counts_stride, allowed_stride,
    GROUPS: tl.constexpr, CAPACITY: tl.constexpr, PENALTIES: tl.constexpr, ALLOWED: tl.constexpr,
):  # fmt: skip
    """Grid (num_chunks, num_rows): list the chunk's tokens at or above the floor, in order.

    `listed` counts all of them; those beyond CAPACITY are not stored.
    """
    chunk = tl.program_id(0)
    row = tl.program_id(1).to(tl.int64)
    at = row * num_chunks + chunk
    floor = tl.load(floors + row)
    found = tl.zeros((), tl.int32)
    if tl.load(chunk_max + at) >= floor:
        heat = tl.load(temperature + row)
        inverse = 1.0 / tl.where(heat < GREEDY_BELOW, 1.0, heat)
        row_counts, repeat, often, once = penalties_of(
            repetition, frequency, presence, counts, count_rows, counts_stride, row, PENALTIES
        )
        for part in range(4 * GROUPS):
            token = (chunk * GROUPS * 4 + part) * LANES + tl.arange(0, LANES)
            x = load_logits(
                logits + row * logits_stride, token, vocab_size, row_counts,
                allowed + row * allowed_stride, inverse, repeat, often, once, PENALTIES, ALLOWED,
            )  # fmt: skip
            reaches = (x >= floor) & (x > float("-inf"))
            here = tl.sum(reaches.to(tl.int32), 0)
            if here > 0:
                slot = found + tl.cumsum(reaches.to(tl.int32), 0) - 1
                kept = reaches & (slot < CAPACITY)
                tl.store(list_logit + at * CAPACITY + slot, x, mask=kept)
                tl.store(list_token + at * CAPACITY + slot, token, mask=kept)
            found += here
    tl.store(listed + at, found)


@triton.jit(do_not_specialize=["num_chunks"])
def choose_kernel(
    top_k, top_p, min_p, seeds, positions, chunk_max, chunk_sum, floors, listed, list_logit,
    list_token, settled, out, vocab_size, num_chunks,
    BLOCK_CHUNKS: tl.constexpr, BLOCK_LIST: tl.constexpr, CAPACITY: tl.constexpr,
):  # fmt: skip
    """Grid (num_rows,): exact top-k, top-p and min-p on the list, then the best score."""
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.arange(0, BLOCK_CHUNKS)
    live_chunk = chunk < num_chunks
    found = tl.load(listed + row * num_chunks + chunk, mask=live_chunk, other=0)
    if (tl.load(settled + row) == 0) & (tl.max(found, 0) <= CAPACITY):
        tops = tl.load(chunk_max + row * num_chunks + chunk, mask=live_chunk, other=float("-inf"))
        peak = tl.max(tops, 0)
        sums = tl.load(chunk_sum + row * num_chunks + chunk, mask=live_chunk, other=0.0)
        total = tl.sum(sums * tl.exp(tops - peak), 0)
        slot = tl.arange(0, BLOCK_LIST)
        owner = slot // CAPACITY
        held = tl.load(listed + row * num_chunks + owner, mask=owner < num_chunks, other=0)
        live = (slot % CAPACITY) < held
        at = row * num_chunks * CAPACITY + slot
        x = tl.load(list_logit + at, mask=live, other=float("-inf"))
        token = tl.load(list_token + at, mask=live, other=2147483647)

        k = tl.load(top_k + row)
        p = tl.load(top_p + row)
        share = tl.load(min_p + row)
        floor = tl.load(floors + row)
        by_count = (k > 0) & (k < vocab_size)
        by_share = (share > 0.0) & (peak + tl.log(tl.maximum(share, 1e-30)) >= floor)
        if by_count & (tl.sum(live.to(tl.int32), 0) > k):
            # The row's floor is minus infinity where few of its segments have a finite logit.
            floor = highest_floor(x, k, tl.min(tl.where(live, x, float("inf")), 0), peak)
        weight = tl.where(x >= floor, tl.exp(x - peak), 0.0)
        mass = tl.sum(weight, 0)
        # The list must hold all that may be kept, and the mass that top-p takes its share of.
        whole = by_count | by_share
        if whole | ((share <= 0.0) & (mass >= p * total)):
            reference = tl.where(whole, mass, total)
            score = x + gumbel(word_of_token(tl.load(seeds + row), tl.load(positions + row), token))
            score = tl.where(x >= floor, score, float("-inf"))
            _, winner = best_lane(score, token)
            logit = tl.max(tl.where(token == winner, x, float("-inf")), 0)
            above = tl.sum(tl.where(x > logit, weight, 0.0), 0)
            while (p < 1.0) & (above > 0.0) & (above >= p * reference):
                # No token this likely or less is kept: the next candidate is a likelier one.
                score = tl.where(x > logit, score, float("-inf"))
                _, winner = best_lane(score, token)
                logit = tl.max(tl.where(token == winner, x, float("-inf")), 0)
                above = tl.sum(tl.where(x > logit, weight, 0.0), 0)
            tl.store(out + row, winner)
            tl.store(settled + row, 1)
