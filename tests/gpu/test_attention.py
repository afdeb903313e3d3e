"""Paged attention at real sizes against float32 torch, unused cache slots full of NaN."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from quire_kernels.ops.attention import AttentionBatch, AttentionOptions, paged_attention
from quire_kernels.reference.attention import paged_attention_reference
from tests.unit.kernels.attention_cases import PagedCase, make_case

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

BATCHES = {
    "decode": ([1] * 5, [1, 16, 1000, 4097, 333]),
    "prefill": ([700, 1, 129, 2048], [700, 1, 129, 2048]),
    "chunk": ([512, 33, 256], [4096, 1000, 257]),
    "mixed": ([1, 1, 300, 17], [2000, 31, 300, 999]),
    "many-decodes": ([1] * 150 + [70, 200], [33] * 150 + [70, 1000]),
}


def assert_close(out: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    """Weights and output are each rounded once to dtype: 2 eps overall, 8 eps on an element."""
    eps = torch.finfo(dtype).eps
    difference = out.to(expected.dtype) - expected
    assert torch.isfinite(out).all()
    assert difference.norm() <= 2 * eps * expected.norm()
    assert difference.abs().max() <= 8 * eps * max(1.0, expected.abs().max().item())


def check(case: PagedCase, options: AttentionOptions, *, fresh: bool) -> None:
    out = torch.full_like(case.q, float("nan"))
    extra: dict[str, Any] = {"k_new": case.k_new, "v_new": case.v_new} if fresh else {}
    paged_attention(case.q, case.key_cache, case.value_cache, case.batch, options, out=out, **extra)
    expected = paged_attention_reference(
        case.q, case.key_cache, case.value_cache, case.batch, options, compute_dtype=torch.float32
    )
    assert_close(out, expected, case.q.dtype)


def case_of(batch: str, **shape: object) -> PagedCase:
    query_lens, context_lens = BATCHES[batch]
    return make_case(
        query_lens,
        context_lens,
        device="cuda",
        poison=float("nan"),
        **shape,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("batch", list(BATCHES))
@pytest.mark.parametrize(
    ("heads", "head_dim", "block_size", "dtype"),
    [
        ((32, 8), 128, 16, torch.bfloat16),
        ((16, 8), 128, 16, torch.bfloat16),
        ((14, 2), 64, 32, torch.bfloat16),
        ((8, 8), 128, 64, torch.float16),
        ((9, 3), 64, 16, torch.float16),
        ((8, 2), 80, 16, torch.bfloat16),
        ((4, 4), 96, 32, torch.bfloat16),
        ((8, 4), 256, 16, torch.bfloat16),
        ((16, 1), 128, 16, torch.bfloat16),
    ],
)
def test_shapes(
    heads: tuple[int, int],
    head_dim: int,
    block_size: int,
    dtype: torch.dtype,
    batch: str,
    fresh: bool,
) -> None:
    case = case_of(
        batch, num_q_heads=heads[0], num_kv_heads=heads[1], head_dim=head_dim,
        block_size=block_size, dtype=dtype,
    )  # fmt: skip
    check(case, AttentionOptions(head_dim**-0.5), fresh=fresh)


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("num_seqs", [16, 24, 32, 40, 48, 56, 64, 80, 104, 128])
def test_decodes_however_often_they_fill_the_device(num_seqs: int, head_dim: int) -> None:
    contexts = [1 + 7919 * i % 1500 for i in range(num_seqs)]
    case = make_case(
        [1] * num_seqs, contexts, device="cuda", poison=float("nan"),
        num_q_heads=32, num_kv_heads=8, head_dim=head_dim, dtype=torch.bfloat16,
    )  # fmt: skip
    check(case, AttentionOptions(head_dim**-0.5), fresh=False)


@pytest.mark.parametrize("batch", list(BATCHES))
@pytest.mark.parametrize(
    "options",
    [
        AttentionOptions(0.1, causal=False),
        AttentionOptions(0.1, window=100),
        AttentionOptions(0.1, soft_cap=5.0),
        AttentionOptions(0.1, window=1000, soft_cap=30.0),
    ],
    ids=["full", "window", "cap", "window-cap"],
)
def test_masks(batch: str, options: AttentionOptions) -> None:
    case = case_of(batch, num_q_heads=8, num_kv_heads=2, head_dim=128, dtype=torch.bfloat16)
    check(case, options, fresh=False)
    check(case, options, fresh=True)


@pytest.mark.parametrize("head_dim", [64, 128, 80])
@pytest.mark.parametrize(("num_decodes", "prompts"), [(3, [70, 200, 1]), (0, [129]), (16, [5])])
def test_padded_steps_are_those_without_padding(
    num_decodes: int, prompts: list[int], head_dim: int
) -> None:
    """As graphs of steps with prompts run them: entries without a token, tokens of nobody."""
    width, num_tokens, num_seqs = 16, 384, 16 + 8
    lens = [1] * num_decodes + prompts
    contexts = [40 + 300 * i for i in range(num_decodes)] + [
        n + 500 * i for i, n in enumerate(prompts)
    ]
    case = make_case(
        lens, contexts, num_q_heads=8, num_kv_heads=2, head_dim=head_dim, dtype=torch.bfloat16,
        device="cuda", poison=float("nan"),
    )  # fmt: skip
    options = AttentionOptions(head_dim**-0.5)
    expected = paged_attention_reference(
        case.q, case.key_cache, case.value_cache, case.batch, options, compute_dtype=torch.float32
    )
    case.key_cache[0], case.value_cache[0] = 0.0, 0.0  # the null block, which padding reads
    places = [*range(num_decodes), *range(width, width + len(prompts))]
    ends = [min(i, num_decodes) for i in range(width + 1)]
    for count in prompts + [0] * (num_seqs - width - len(prompts)):
        ends.append(ends[-1] + count)
    lengths = torch.ones(num_seqs, dtype=torch.int32, device="cuda")
    lengths[places] = case.batch.context_lens
    table = torch.zeros(num_seqs, case.batch.block_table.shape[1], dtype=torch.int32, device="cuda")
    table[places] = case.batch.block_table
    batch = AttentionBatch(
        torch.tensor(ends, dtype=torch.int32, device="cuda"),
        lengths,
        table,
        width,
        4096,
        num_tokens,
    )

    def padded(values: torch.Tensor) -> torch.Tensor:
        whole = values.new_full((num_tokens, *values.shape[1:]), float("nan"))
        whole[: len(values)] = values
        return whole

    out = padded(torch.full_like(case.q, float("nan")))
    paged_attention(
        padded(case.q), case.key_cache, case.value_cache, batch, options,
        k_new=padded(case.k_new), v_new=padded(case.v_new), out=out,
    )  # fmt: skip
    assert_close(out[: len(case.q)], expected, torch.bfloat16)


def test_graph_replay_follows_new_lengths() -> None:
    case = case_of("decode", num_q_heads=32, num_kv_heads=8, head_dim=128, dtype=torch.bfloat16)
    options = AttentionOptions(128**-0.5)
    out = torch.full_like(case.q, float("nan"))

    def attend() -> None:
        paged_attention(case.q, case.key_cache, case.value_cache, case.batch, options, out=out)

    attend()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        attend()
    case.batch.context_lens.copy_(torch.tensor([1, 9, 512, 64, 200], dtype=torch.int32))
    out.fill_(float("nan"))
    graph.replay()
    expected = paged_attention_reference(
        case.q, case.key_cache, case.value_cache, case.batch, options, compute_dtype=torch.float32
    )
    assert_close(out, expected, torch.bfloat16)
