"""Norms, rotary embedding with the cache write, gated activations and block copies."""

from __future__ import annotations

import pytest
import torch

from quire_kernels.errors import ArgumentError, UnsupportedError
from quire_kernels.ops.blocks import copy_blocks
from quire_kernels.ops.gated import gated
from quire_kernels.ops.norm import add_rms_norm, rms_norm
from quire_kernels.ops.rope import HeadNorm, rope_and_cache
from quire_kernels.reference.norm import gated_reference, rms_norm_reference
from quire_kernels.reference.rope import rope_reference

NAN = float("nan")


def close(out: torch.Tensor, expected: torch.Tensor) -> bool:
    """One rounding of the output, and fp32 sums of terms near one."""
    eps = max(torch.finfo(out.dtype).eps, 2e-6)
    return bool(((out.double() - expected).abs() <= eps * (expected.abs() + 1)).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("rows", "size"), [(3, 781), (1, 64), (2, 4096)])
def test_rms_norm(rows: int, size: int, dtype: torch.dtype) -> None:
    x = torch.randn(rows, size + 5).to(dtype)[:, :size]
    weight = torch.randn(size).to(dtype)
    out = torch.full((rows, size), NAN, dtype=dtype)
    rms_norm(x, weight, 1e-5, weight_offset=1.0, out=out)
    assert close(out, rms_norm_reference(x.double(), weight, 1e-5, 1.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_add_rms_norm_keeps_the_sum_as_residual(dtype: torch.dtype) -> None:
    x, residual = torch.randn(5, 300).to(dtype), torch.randn(5, 300).to(dtype)
    weight = torch.randn(300)
    total = (x.double() + residual.double()).to(dtype)
    out = add_rms_norm(x, residual, weight, 1e-6, out=torch.full_like(x, NAN))
    assert torch.equal(residual, total)
    assert close(out, rms_norm_reference(total.double(), weight, 1e-6))


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_gated(activation: str) -> None:
    gate_up = torch.randn(3, 2 * 1823).half()
    out = torch.full((3, 1823), NAN, dtype=torch.float16)
    gated(gate_up, activation=activation, out=out)
    assert close(out, gated_reference(gate_up.double(), activation))


@pytest.mark.parametrize("normed", [False, True], ids=["plain", "norm"])
@pytest.mark.parametrize(
    ("heads", "head_dim", "rotary_dim"), [((5, 1), 64, 64), ((9, 3), 80, 80), ((2, 2), 128, 96)]
)
def test_rope_rotates_and_writes_its_slots_only(
    heads: tuple[int, int], head_dim: int, rotary_dim: int, normed: bool
) -> None:
    num_tokens, block_size = 7, 16
    widths = [heads[0] * head_dim, heads[1] * head_dim, heads[1] * head_dim]
    q, k, v = (
        part.reshape(num_tokens, -1, head_dim)
        for part in torch.split(torch.randn(num_tokens, sum(widths)), widths, 1)
    )
    positions = torch.tensor([0, 5, 6, 40, 41, 42, 99], dtype=torch.int32)
    cos_sin = torch.randn(100, rotary_dim)
    cache = torch.full((5, 2, 2, heads[1], block_size, head_dim), NAN)
    slots = torch.tensor([16, 17, 79, 33, 34, 70, 0])
    norm = HeadNorm(torch.randn(head_dim), torch.randn(head_dim), 1e-6) if normed else None
    want_q, want_k = rope_reference(q, k, positions, cos_sin, norm)
    v_before, q_before = v.clone(), q.clone()
    q_out = torch.full_like(q.contiguous(), NAN)
    rope_and_cache(
        q, k, v, positions, cos_sin, cache[:, 1, 0], cache[:, 1, 1], slots, norm=norm, q_out=q_out
    )
    assert close(q_out, want_q)
    assert torch.equal(q, q_before)
    assert close(k, want_k)
    rows = cache.permute(0, 4, 1, 2, 3, 5).flatten(0, 1)
    assert close(rows[slots, 1, 0], want_k)
    assert torch.equal(rows[slots, 1, 1], v_before)
    rows[slots, 1] = NAN
    assert rows.isnan().all()


def test_rope_in_place_equals_out_of_place() -> None:
    q, k, v = (torch.randn(3, 4, 64) for _ in range(3))
    positions = torch.arange(3, dtype=torch.int32)
    cos_sin, cache = torch.randn(8, 64), torch.zeros(2, 1, 2, 4, 16, 64)
    want, _ = rope_reference(q, k, positions, cos_sin)
    slots = torch.tensor([16, 17, 18], dtype=torch.int32)
    assert rope_and_cache(q, k, v, positions, cos_sin, cache[:, 0, 0], cache[:, 0, 1], slots) is q
    assert close(q, want)


def test_blocks_are_copied_whole_and_alone() -> None:
    cache = torch.randn(6, 2, 2, 1, 16, 80).half()
    before = cache.clone()
    copy_blocks(cache, torch.tensor([[1, 4], [1, 2], [3, 5]], dtype=torch.int32))
    assert torch.equal(cache, before[[0, 1, 1, 3, 1, 3]])


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"weight: shape \(3,\), expected \(4\)"):
        rms_norm(torch.zeros(1, 4), torch.zeros(3), 1e-5)
    with pytest.raises(UnsupportedError, match="up to 32768"):
        rms_norm(torch.zeros(1, 40000), torch.zeros(40000), 1e-5)
    with pytest.raises(ArgumentError, match="no two halves"):
        gated(torch.zeros(1, 3))
    with pytest.raises(UnsupportedError, match="silu, gelu_tanh"):
        gated(torch.zeros(1, 4), activation="relu")
    with pytest.raises(ArgumentError, match="not contiguous"):
        copy_blocks(torch.zeros(4, 4).T, torch.zeros(1, 2, dtype=torch.int32))
    empty, cache = torch.zeros(0, 1, 64), torch.zeros(1, 1, 16, 64)
    none = torch.zeros(0, dtype=torch.int32)
    with pytest.raises(ArgumentError, match="even rotary_dim"):
        rope_and_cache(empty, empty, empty, none, torch.zeros(2, 65), cache, cache, none)
