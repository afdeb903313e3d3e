"""Paged attention against plain torch; slots that no query may see hold NaN."""

from __future__ import annotations

import pytest
import torch

from quire_kernels.cpu import Team
from quire_kernels.cpu import reference as plain
from quire_kernels.cpu.ops import paged_attention
from quire_kernels.errors import ArgumentError

from .cases import make_cache, make_inputs

CHUNKS = {
    "one token": [(0, 1)],
    "decodes": [(0, 1), (31, 1), (32, 1), (100, 1)],
    "a long decode, its keys split": [(700, 1)],
    "prompts": [(0, 7), (0, 33)],
    "a prompt cut in two": [(0, 300)],
    "decode and chunk": [(45, 1), (40, 21)],
}
HEADS = [(1, 1, 8), (6, 2, 64), (4, 4, 80), (9, 1, 16), (8, 1, 40)]


@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS)
@pytest.mark.parametrize(("num_heads", "num_kv_heads", "head_dim"), HEADS)
def test_equals_torch(
    chunks: list[tuple[int, int]], num_heads: int, num_kv_heads: int, head_dim: int, team: Team
) -> None:
    inputs = make_inputs(chunks, block_size=16, num_blocks=60)
    shape = (60, 2, 2, num_kv_heads, 16, head_dim)
    cache = make_cache(inputs, shape, torch.float32)
    query = torch.randn(int(inputs.num_tokens.sum()), num_heads, head_dim)
    expected = plain.paged_attention(query, cache, 1, inputs, scale=head_dim**-0.5)
    actual = paged_attention(query, cache, 1, inputs, team)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("block_size", [1, 16, 24])
@pytest.mark.parametrize(("softcap", "window"), [(0.0, 0), (3.0, 0), (0.0, 5), (2.0, 40)])
def test_takes_every_cache(
    dtype: torch.dtype, block_size: int, softcap: float, window: int, team: Team
) -> None:
    inputs = make_inputs([(70, 1), (30, 20)], block_size=block_size, num_blocks=150)
    cache = make_cache(inputs, (150, 1, 2, 2, block_size, 32), dtype)
    query = torch.randn(21, 4, 32)
    options = {"softcap": softcap, "window": window, "scale": 0.3}
    expected = plain.paged_attention(query, cache, 0, inputs, **options)  # type: ignore[arg-type]
    actual = paged_attention(query, cache, 0, inputs, team, **options)  # type: ignore[arg-type]
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_large_scores_do_not_overflow(team: Team) -> None:
    inputs = make_inputs([(40, 3)], block_size=16, num_blocks=8)
    cache = make_cache(inputs, (8, 1, 2, 1, 16, 8), torch.float32) * 50
    query = torch.randn(3, 1, 8) * 50
    expected = plain.paged_attention(query, cache, 0, inputs, scale=1.0)
    actual = paged_attention(query, cache, 0, inputs, team, scale=1.0)
    # float32 knows scores of tens of thousands, and so their exponentials' ratios, to thousandths
    torch.testing.assert_close(actual, expected, rtol=2e-3, atol=2e-3)


def test_refuses_what_does_not_fit(team: Team) -> None:
    inputs = make_inputs([(0, 2)], block_size=16, num_blocks=8)
    cache = torch.zeros(8, 1, 2, 1, 16, 8)
    with pytest.raises(ArgumentError, match="layer 1"):
        paged_attention(torch.zeros(2, 1, 8), cache, 1, inputs, team)
    with pytest.raises(ArgumentError, match="kv_cache"):
        paged_attention(torch.zeros(2, 1, 16), cache, 0, inputs, team)
    with pytest.raises(ArgumentError, match="kv_cache"):
        paged_attention(torch.zeros(2, 1, 8), cache.double(), 0, inputs, team)
