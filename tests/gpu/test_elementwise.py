"""Norms, rotary embedding, gated activations, block copies and sampling at real sizes."""

from __future__ import annotations

import pytest
import torch

from quire_kernels.ops.blocks import copy_blocks
from quire_kernels.ops.gated import gated
from quire_kernels.ops.norm import add_rms_norm
from quire_kernels.ops.rope import HeadNorm, rope_and_cache
from quire_kernels.ops.sampling import sample
from quire_kernels.reference.norm import gated_reference, rms_norm_reference
from quire_kernels.reference.rope import rope_reference
from quire_kernels.reference.sampling import scores_reference
from tests.unit.kernels.sampling_cases import make_parameters, make_penalties

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
NAN = float("nan")
EPS = torch.finfo(torch.bfloat16).eps


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda").to(torch.bfloat16)


def assert_close(out: torch.Tensor, expected: torch.Tensor) -> None:
    """One rounding to bf16."""
    assert ((out.double() - expected).abs() <= EPS * (expected.abs() + 0.1)).all()


@pytest.mark.parametrize("size", [1024, 4096, 14336])
@pytest.mark.parametrize("rows", [1, 257])
def test_add_rms_norm(rows: int, size: int) -> None:
    x, residual, weight = noise(rows, size), noise(rows, size), noise(size)
    total = x + residual
    out = add_rms_norm(x, residual, weight, 1e-6, out=torch.full_like(x, NAN))
    assert torch.equal(residual, total)
    assert_close(out, rms_norm_reference(total.double(), weight, 1e-6))


def test_gated() -> None:
    gate_up = noise(300, 2 * 14336)
    out = gated(gate_up, out=torch.full((300, 14336), NAN, device="cuda", dtype=torch.bfloat16))
    assert_close(out, gated_reference(gate_up.double()))


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(("heads", "head_dim"), [((32, 8), 128), ((9, 3), 64), ((8, 8), 96)])
def test_rope_and_cache(heads: tuple[int, int], head_dim: int, normed: bool) -> None:
    num_tokens, (num_q, num_kv) = 1000, heads
    heads_of = [num_q, num_kv, num_kv]
    q, k, v = torch.split(noise(num_tokens, sum(heads_of), head_dim), heads_of, 1)
    positions = torch.randint(0, 5000, (num_tokens,), device="cuda", dtype=torch.int32)
    cos_sin = torch.randn(5000, head_dim, device="cuda").clamp(-1, 1)
    cache = torch.full((80, 2, 2, num_kv, 16, head_dim), NAN, device="cuda", dtype=torch.bfloat16)
    slots = torch.randperm(79 * 16, device="cuda")[:num_tokens] + 16
    norm = HeadNorm(noise(head_dim), noise(head_dim), 1e-6) if normed else None
    want_q, want_k = rope_reference(q, k, positions, cos_sin, norm)
    rope_and_cache(q, k, v, positions, cos_sin, cache[:, 1, 0], cache[:, 1, 1], slots, norm=norm)
    rows = cache.permute(0, 4, 1, 2, 3, 5).flatten(0, 1)
    assert_close(q, want_q)
    assert_close(k, want_k)
    assert torch.equal(rows[slots, 1, 0], k)
    assert torch.equal(rows[slots, 1, 1], v)
    rows[slots, 1] = NAN
    assert rows.isnan().all()


def test_copy_blocks() -> None:
    cache = noise(64, 32, 2, 8, 16, 128)
    before = cache.clone()
    order = torch.randperm(64, device="cuda").int()
    copy_blocks(cache, order.view(32, 2))
    assert torch.equal(cache[order[1::2].long()], before[order[::2].long()])
    assert torch.equal(cache[order[::2].long()], before[order[::2].long()])


ROWS: list[dict[str, float]] = [
    {"temperature": 0.0},
    {},
    {"temperature": 0.6, "top_p": 0.9},
    {"temperature": 0.8, "top_k": 20, "top_p": 0.95},
    {"top_k": 50, "min_p": 0.01},
    {"temperature": 2.0, "top_p": 0.2},
]


@pytest.mark.parametrize("vocab_size", [128256, 151936])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sampling_equals_sorting(vocab_size: int, dtype: torch.dtype) -> None:
    logits = (torch.randn(len(ROWS), vocab_size, device="cuda") * 3).to(dtype)
    parameters = make_parameters(ROWS, device="cuda")
    penalties = make_penalties(len(ROWS), vocab_size, "cuda")
    for used in (None, penalties):
        out = sample(logits, parameters, penalties=used)
        scores = scores_reference(logits, parameters, penalties=used)
        picked = scores.gather(1, out.cpu().long()[:, None])[:, 0]
        assert (picked >= scores.max(1).values - 1e-3).all()


@pytest.mark.parametrize("num_rows", [1, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_top_k_of_ten_tokens_side_by_side_comes_to_an_end(
    num_rows: int, dtype: torch.dtype
) -> None:
    vocab_size = 128256
    logits = (torch.randn(num_rows, vocab_size, device="cuda") * 3).to(dtype)
    allowed = torch.zeros(num_rows, vocab_size // 32, dtype=torch.int32, device="cuda")
    allowed[:, 1] = 0x3FF  # a grammar's digits: in one segment, and so fewer of these than top_k
    rows: list[dict[str, float]] = [{"top_k": 3, "seed": row} for row in range(num_rows)]
    parameters = make_parameters(rows, device="cuda")
    out = sample(logits, parameters, allowed=allowed)
    scores = scores_reference(logits, parameters, allowed=allowed)
    picked = scores.gather(1, out.cpu().long()[:, None])[:, 0]
    assert (picked >= scores.max(1).values - 1e-3).all()
    best = logits[:, 32:42].float().topk(3).values[:, -1]
    assert (logits.gather(1, out.long()[:, None])[:, 0].float() >= best).all()
    assert ((out >= 32) & (out < 42)).all()


def test_samples_follow_the_softmax() -> None:
    count = 20000
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0], device="cuda").repeat(count, 1)
    rows = [{"seed": 9.0, "position": float(i)} for i in range(count)]
    picked = sample(logits, make_parameters(rows, device="cuda", truncates=False))
    share = torch.bincount(picked.long(), minlength=4).cpu() / count
    expected = logits[0].softmax(0).cpu()
    assert ((share - expected).abs() < 4 * (expected * (1 - expected) / count).sqrt()).all()
