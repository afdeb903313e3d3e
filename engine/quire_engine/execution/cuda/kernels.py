"""The executor's own small kernels: they turn row numbers into a step's inputs, on the device.

    fetch_kernel     a decode step's inputs in the host's memory         -> the device's
    write_kernel     changed entries of block tables and sampling state  -> the rows' memory
    locate_kernel    (row, position) of each token                       -> its id and cache slot
    gather_kernel    row of each sequence                                -> table, sampling state
    store_kernel     sampled tokens                                      -> their rows

Counts differ from step to step and are kept out of Triton's specialization: nothing compiles
again while serving.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc"
# ruff: noqa: ANN001, ANN201, N803
import triton
import triton.language as tl

from quire_kernels.triton.dependent import wait_for_inputs

BLOCK = 256
"""Tokens, or changed entries, of one program."""
TABLE_BLOCK = 128
"""Entries of a block table copied at a time."""
WORDS_PER_ROW = 8
"""int32 words of a row's sampling state: temperature, top_p, min_p, top_k, the seed's two, and
two unused ones that keep rows aligned."""


@triton.jit(do_not_specialize=["count"])
def write_kernel(memory, indices, values, count, BLOCK: tl.constexpr):
    """Grid (tiles of count,). `memory[indices[i]] = values[i]`; no index comes twice."""
    entry = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = entry < count
    target = tl.load(indices + entry, mask=live, other=0)
    tl.store(memory + target, tl.load(values + entry, mask=live, other=0), mask=live)


@triton.jit(do_not_specialize=["num_tokens"])
def locate_kernel(
    rows, positions, given, newest, tables, token_ids, slots, num_tokens, table_stride,
    BLOCK_SIZE: tl.constexpr, BLOCK: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Grid (tiles of num_tokens,). A given token below 0 stands for the row's newest sampled."""
    wait_for_inputs(DEPENDENT)
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = token < num_tokens
    row = tl.load(rows + token, mask=live, other=0)
    position = tl.load(positions + token, mask=live, other=0)
    known = tl.load(given + token, mask=live, other=0)
    sampled = tl.load(newest + row, mask=live & (known < 0), other=0)
    tl.store(token_ids + token, tl.where(known < 0, sampled, known), mask=live)
    entry = row.to(tl.int64) * table_stride + position // BLOCK_SIZE
    block = tl.load(tables + entry, mask=live, other=0)
    tl.store(slots + token, block * BLOCK_SIZE + position % BLOCK_SIZE, mask=live)


@triton.jit
def gather_kernel(
    rows, context_lens, tables, table_out, table_stride, state, knobs, seeds, knob_stride,
    TABLE: tl.constexpr, KNOBS: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    TABLE_BLOCK: tl.constexpr, WORDS: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Grid (num_sequences,). TABLE copies the used part of a row's table, KNOBS its state."""
    wait_for_inputs(DEPENDENT)
    sequence = tl.program_id(0)
    row = tl.load(rows + sequence).to(tl.int64)
    if KNOBS:
        word = tl.arange(0, WORDS)
        values = tl.load(state + row * WORDS + word)
        tl.store(knobs + word * knob_stride + sequence, values, mask=word < 4)
        tl.store(seeds + 2 * sequence + word - 4, values, mask=(word >= 4) & (word < 6))
    if TABLE:
        num_blocks = tl.cdiv(tl.load(context_lens + sequence), BLOCK_SIZE)
        source = tables + row * table_stride
        target = table_out + sequence.to(tl.int64) * table_stride
        for first in range(0, num_blocks, TABLE_BLOCK):
            entry = first + tl.arange(0, TABLE_BLOCK)
            live = entry < num_blocks
            tl.store(target + entry, tl.load(source + entry, mask=live, other=0), mask=live)


@triton.jit(do_not_specialize=["count"])
def store_kernel(rows, sampled, newest, count, BLOCK: tl.constexpr, DEPENDENT: tl.constexpr):
    """Grid (tiles of count,). Padding rows share a place and race for it on purpose.

    -1 stands for no token; whatever is computed from it, it must lie in the vocabulary.
    """
    wait_for_inputs(DEPENDENT)
    entry = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = entry < count
    row = tl.load(rows + entry, mask=live, other=0)
    token = tl.maximum(tl.load(sampled + entry, mask=live, other=0), 0)
    tl.store(newest + row, token, mask=live)


@triton.jit(do_not_specialize=["count"])
def fetch_kernel(source, target, count, BLOCK: tl.constexpr):
    """Grid (tiles of count,). The source is pinned memory of the host."""
    entry = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = entry < count
    tl.store(target + entry, tl.load(source + entry, mask=live), mask=live)
