"""Launches that go straight to the driver do what Triton's own do, whatever their arguments."""

from __future__ import annotations

import pytest
import torch

from quire_kernels.ops import launching
from quire_kernels.ops.gated import gated
from quire_kernels.ops.norm import add_rms_norm
from quire_kernels.reference.norm import gated_reference, rms_norm_reference

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
EPS = torch.finfo(torch.bfloat16).eps


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda").to(torch.bfloat16)


@pytest.mark.parametrize("offset", [0, 1, 8])
@pytest.mark.parametrize("size", [1, 16, 17, 1024])
def test_sizes_and_addresses_of_every_kind(size: int, offset: int) -> None:
    for rows in (1, 16, 33):  # the second call of each kind is made without Triton
        whole = noise(rows * 2 * size + offset)
        gate_up = whole[offset:].view(rows, 2 * size)
        out = gated(gate_up)
        expected = gated_reference(gate_up.double())
        assert ((out.double() - expected).abs() <= EPS * (expected.abs() + 0.1)).all()


def test_a_known_launch_takes_other_tensors() -> None:
    weight = noise(512)
    add_rms_norm(noise(7, 512), noise(7, 512), weight, 1e-6)
    count = len(launching._KNOWN)
    for _ in range(3):
        x, residual = noise(7, 512), noise(7, 512)
        total = x + residual
        out = add_rms_norm(x, residual, weight, 1e-6)
        expected = rms_norm_reference(total.double(), weight, 1e-6)
        assert ((out.double() - expected).abs() <= EPS * (expected.abs() + 0.1)).all()
    assert len(launching._KNOWN) == count


def test_dtypes_are_kept_apart() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        gate_up = torch.randn(3, 64, device="cuda").to(dtype)
        expected = gated_reference(gate_up.double())
        assert torch.allclose(gated(gate_up).double(), expected, atol=2e-2)
