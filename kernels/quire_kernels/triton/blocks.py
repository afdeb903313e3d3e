"""Copy of whole cache blocks: copy-on-write, beam search."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc"
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def copy_blocks_kernel(cache, pairs, block_words, BLOCK: tl.constexpr):
    """Grid (num_pairs, tiles of a block). Pairs must not share a target or read one."""
    pair = tl.program_id(0)
    source = tl.load(pairs + 2 * pair).to(tl.int64) * block_words
    target = tl.load(pairs + 2 * pair + 1).to(tl.int64) * block_words
    word = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    live = word < block_words
    tl.store(cache + target + word, tl.load(cache + source + word, mask=live), mask=live)
