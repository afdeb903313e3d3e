"""Caches of more than 2**31 elements: offsets of their last blocks take 64 bits.

A GPU's cache has some 10**11 elements. These are as large only by their addresses: they lie in a
file that is one hole but for the blocks that a test takes, and behind as much of it again, where an
offset that lost its upper bits would lead.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from quire_kernels.ops.attention import AttentionOptions, paged_attention
from quire_kernels.ops.blocks import copy_blocks
from quire_kernels.ops.rope import rope_and_cache
from tests.unit.kernels.attention_cases import make_case

BEFORE, CACHE = 2**32, 2**32 + 2**30
"""Halves: those below zero that 32 bits reach as words of four bytes, and more than as many."""


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[torch.Tensor]:
    """[CACHE] float16."""
    path = tmp_path / "cache"
    whole = torch.from_file(str(path), shared=True, size=BEFORE + CACHE, dtype=torch.float16)
    yield whole[BEFORE:]
    path.unlink()


def spread(memory: torch.Tensor, *caches: torch.Tensor) -> list[torch.Tensor]:
    """The same blocks, side by side as keys and values are, as far apart as fills the memory."""
    num_blocks, *block = caches[0].shape
    stride = CACHE // num_blocks
    strides = (stride, *torch.empty(block, device="meta").stride())
    size = caches[0][0].numel()
    return [
        memory[size * i :].as_strided(cache.shape, strides).copy_(cache)
        for i, cache in enumerate(caches)
    ]


@pytest.mark.parametrize("fixed", [False, True])
def test_attention_reads_blocks_anywhere(memory: torch.Tensor, fixed: bool) -> None:
    case = make_case(
        [1, 1, 37, 5], [140, 1, 37, 83], num_q_heads=2, num_kv_heads=1, dtype=torch.float16
    )
    options = AttentionOptions(0.2, fixed=fixed)
    keys, values = spread(memory, case.key_cache, case.value_cache)
    expected = paged_attention(case.q, case.key_cache, case.value_cache, case.batch, options)
    assert torch.equal(paged_attention(case.q, keys, values, case.batch, options), expected)


def test_rope_writes_blocks_anywhere(memory: torch.Tensor) -> None:
    q, k, v = (torch.randn(3, 2, 64).half() for _ in range(3))
    positions, cos_sin = torch.arange(3, dtype=torch.int32), torch.randn(8, 64)
    slots = torch.tensor([5, 32 + 7, 4 * 32 + 31], dtype=torch.int32)
    near = [torch.zeros(5, 2, 32, 64).half() for _ in range(2)]
    far = spread(memory, *near)
    for keys, values in (near, far):
        rope_and_cache(
            q.clone(), k.clone(), v, positions, cos_sin, key_cache=keys, value_cache=values,
            slots=slots,
        )  # fmt: skip
    assert all(map(torch.equal, near, far))
    assert near[0].any()


def test_blocks_are_copied_anywhere(memory: torch.Tensor) -> None:
    cache = memory.view(-1, 1, 2, 1, 16, 64)
    last = len(cache) - 1
    cache[last] = torch.randn(1, 2, 1, 16, 64)
    for pair in ((last, 3), (3, last - 1)):
        copy_blocks(cache, torch.tensor([pair], dtype=torch.int32))
    assert torch.equal(cache[last], cache[3])
    assert torch.equal(cache[last], cache[last - 1])
