"""Paged attention against float64 torch, interpreted, on odd shapes; unused slots hold NaN."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from quire_kernels.errors import ArgumentError, UnsupportedError
from quire_kernels.ops.attention import AttentionBatch, AttentionOptions, paged_attention
from quire_kernels.reference.attention import paged_attention_reference
from tests.unit.kernels.attention_cases import PagedCase, make_case

NAN = float("nan")
MIXED = ([1, 1, 37, 5], [40, 1, 37, 83])


def relative_error(case: PagedCase, options: AttentionOptions, *, fresh: bool = False) -> float:
    out = torch.full_like(case.q, NAN)
    extra: dict[str, Any] = {"k_new": case.k_new, "v_new": case.v_new} if fresh else {}
    paged_attention(case.q, case.key_cache, case.value_cache, case.batch, options, out=out, **extra)
    expected = paged_attention_reference(
        case.q, case.key_cache, case.value_cache, case.batch, options
    )
    return float((out.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize("fresh", [False, True], ids=["paged", "fresh"])
@pytest.mark.parametrize(
    ("heads", "head_dim", "block_size"),
    [((4, 2), 64, 16), ((6, 2), 80, 32), ((3, 3), 96, 16), ((5, 1), 128, 64), ((2, 1), 256, 16)],
)
def test_mixed_batches_of_every_shape(
    heads: tuple[int, int], head_dim: int, block_size: int, fresh: bool
) -> None:
    case = make_case(
        *MIXED, num_q_heads=heads[0], num_kv_heads=heads[1], head_dim=head_dim,
        block_size=block_size, poison=NAN,
    )  # fmt: skip
    assert relative_error(case, AttentionOptions(head_dim**-0.5), fresh=fresh) < 1e-6


@pytest.mark.parametrize(
    "options",
    [
        AttentionOptions(0.2, causal=False),
        AttentionOptions(0.2, window=1),
        AttentionOptions(0.2, window=33),
        AttentionOptions(0.2, soft_cap=2.0),
        AttentionOptions(0.2, window=20, soft_cap=30.0),
    ],
    ids=["full", "window1", "window33", "cap", "window-cap"],
)
def test_masks_and_caps(options: AttentionOptions) -> None:
    case = make_case(*MIXED, num_q_heads=2, num_kv_heads=1, poison=NAN)
    assert relative_error(case, options) < 1e-6
    assert relative_error(case, options, fresh=True) < 1e-6


def test_fixed_attention_is_the_same_for_chunks_and_decodes() -> None:
    options = AttentionOptions(0.2, fixed=True)
    case = make_case([70], [100], num_q_heads=3, num_kv_heads=1, poison=NAN)
    assert relative_error(case, options, fresh=True) < 1e-6
    caches = (case.key_cache, case.value_cache)
    whole = paged_attention(case.q, *caches, case.batch, options)
    for token, count in ((0, 1), (69, 1), (3, 40)):
        part = replace(
            case.batch,
            cu_seqlens_q=torch.tensor([0, count], dtype=torch.int32),
            context_lens=torch.tensor([30 + token + count], dtype=torch.int32),
            num_decodes=int(count == 1),
        )
        rows = slice(token, token + count)
        alone = paged_attention(case.q[rows], *caches, part, options)
        assert torch.allclose(alone, whole[rows], atol=1e-6)


def test_half_precision_stays_within_its_rounding() -> None:
    case = make_case(*MIXED, dtype=torch.float16, poison=NAN)
    assert relative_error(case, AttentionOptions(0.125)) < 2 * torch.finfo(torch.float16).eps


@pytest.mark.parametrize("context_lens", [[1, 300, 31], [200, 33, 128]])
def test_split_decode_merges_to_the_same_answer(context_lens: list[int]) -> None:
    case = make_case([1, 1, 1], context_lens, num_q_heads=3, num_kv_heads=1, poison=NAN)
    assert relative_error(case, AttentionOptions(0.125)) < 1e-6


def test_padding_rows_read_the_null_block_and_harm_nobody() -> None:
    case = make_case([1, 1], [50, 20])
    lens = torch.tensor([50, 20, 1, 1], dtype=torch.int32)
    table = torch.cat([case.batch.block_table, torch.zeros_like(case.batch.block_table)])
    padded = AttentionBatch(torch.arange(5, dtype=torch.int32), lens, table, 4, 50)
    q = torch.cat([case.q, case.q])
    out = paged_attention(q, case.key_cache, case.value_cache, padded, AttentionOptions(0.1))
    alone = paged_attention(
        case.q, case.key_cache, case.value_cache, case.batch, AttentionOptions(0.1)
    )
    assert torch.allclose(out[:2], alone, atol=1e-6)


def test_more_decodes_than_a_tile_has_tokens_leave_the_prefills_whole() -> None:
    query_lens = [1] * 40 + [19, 3]
    case = make_case(query_lens, [3] * 40 + [25, 3], num_q_heads=2, num_kv_heads=1, poison=NAN)
    assert relative_error(case, AttentionOptions(0.125)) < 1e-6


def attend(case: PagedCase, **changes: torch.Tensor) -> None:
    caches = {"key_cache": case.key_cache, "value_cache": case.value_cache}
    tensors: dict[str, Any] = {"q": case.q, **caches, **changes}
    paged_attention(**tensors, batch=case.batch, options=AttentionOptions(0.1))


def test_what_has_no_kernel_is_refused_with_what_has() -> None:
    case = make_case([1], [20])
    with pytest.raises(UnsupportedError, match=r"head_dim 48 .* 64, 80, 96, 128, 256"):
        attend(
            case, q=case.q[..., :48], key_cache=case.key_cache[..., :48],
            value_cache=case.value_cache[..., :48],
        )  # fmt: skip
    with pytest.raises(UnsupportedError, match=r"block_size 8 .* 16, 32, 64"):
        attend(case, key_cache=case.key_cache[:, :, :8], value_cache=case.value_cache[:, :, :8])
    with pytest.raises(UnsupportedError, match="float64"):
        attend(case, q=case.q.double())
    with pytest.raises(UnsupportedError, match="bfloat16"):
        attend(case, q=case.q.bfloat16())
    with pytest.raises(ArgumentError, match="no multiple of 2"):
        attend(case, q=case.q[:, :3])
    with pytest.raises(ArgumentError, match="last dimension has stride"):
        attend(case, q=case.q.transpose(1, 2).contiguous().transpose(1, 2))
    with pytest.raises(ArgumentError, match="come together"):
        attend(case, k_new=case.k_new)


def test_batches_that_contradict_themselves_are_refused() -> None:
    ints = torch.ones(2, dtype=torch.int32)
    table = torch.zeros(2, 4, dtype=torch.int32)
    starts = torch.arange(3, dtype=torch.int32)
    with pytest.raises(ArgumentError, match="num_decodes 3 of 2"):
        AttentionBatch(starts, ints, table, 3, 16)
    with pytest.raises(ArgumentError, match="1 rows for 2 sequences"):
        AttentionBatch(starts, ints, table[:1], 2, 16)
    with pytest.raises(ArgumentError, match=r"dtype torch\.int64"):
        AttentionBatch(starts.long(), ints, table, 2, 16)
    with pytest.raises(ArgumentError, match="window"):
        AttentionOptions(1.0, window=4, causal=False)
