"""Narrow products, interpreted, with and without a split of the depth."""

from __future__ import annotations

import pytest
import torch

from quire_kernels.ops.device import Device, pretending
from quire_kernels.ops.gated_hopper import fills
from quire_kernels.ops.linear import (
    arrivals_of,
    config_for,
    fixed_gated_linear,
    fixed_linear,
    gated_linear,
    launch,
    linear,
)
from quire_kernels.tuning.tables import LaunchConfig


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize(("rows", "num_out", "num_in"), [(1, 33, 64), (5, 70, 150), (17, 32, 31)])
def test_narrow_products(rows: int, num_out: int, num_in: int, splits: int) -> None:
    x, weight = torch.randn(rows, num_in + 3)[:, :num_in], torch.randn(num_out, num_in)
    out = torch.full((rows, num_out), float("nan"))
    launch(x, weight, out, LaunchConfig(16, 32, 4, 1, block_k=32, splits=splits))
    assert torch.allclose(out.double(), x.double() @ weight.double().T, atol=2e-5)
    assert not arrivals_of(x).any()


@pytest.mark.parametrize(("num_out", "num_in"), [(33, 64), (8, 150)])
def test_vector_products(num_out: int, num_in: int) -> None:
    x, weight = torch.randn(1, num_in), torch.randn(num_out, num_in)
    out = torch.full((1, num_out), float("nan"))
    launch(x, weight, out, LaunchConfig(1, 16, 4, 1, block_k=32))
    assert torch.allclose(out.double(), x.double() @ weight.double().T, atol=2e-5)


def test_the_operation_equals_torch_whoever_computes_it() -> None:
    weight = torch.randn(40, 64)
    for rows in (1, 64, 65):
        x = torch.randn(rows, 64)
        assert torch.allclose(linear(x, weight), x @ weight.T, atol=2e-5)


def test_fixed_products_are_the_same_alone_and_among_others() -> None:
    x, weight = torch.randn(70, 100)[:, :97], torch.randn(33, 97)
    whole = fixed_linear(x, weight)
    assert torch.allclose(whole, x @ weight.T, atol=2e-5)
    # to the last bit on a GPU alone: the interpreter's products are numpy's
    assert torch.allclose(fixed_linear(x[66:67], weight), whole[66:67], atol=2e-5)
    assert torch.allclose(fixed_linear(x[1:], weight), whole[1:], atol=2e-5)


@pytest.mark.parametrize("rows", [1, 65])
def test_gated_products_equal_torch(rows: int) -> None:
    x, weight = torch.randn(rows, 70), torch.randn(2 * 33, 70)
    gate, up = (x.double() @ weight.double().T).chunk(2, 1)
    expected = torch.nn.functional.silu(gate) * up
    for operation in (gated_linear, fixed_gated_linear):
        assert torch.allclose(operation(x, weight).double(), expected, atol=2e-4)


@pytest.mark.parametrize(
    ("rows", "num_out", "fill"),
    [
        (2048, 28672, True),  # 1,792 tiles in 14 waves of 132
        (2048, 6144, True),  # 384 in 3
        (1152, 6144, False),  # 216 in 2
        (1024, 28672, True),
        (1024, 2048, False),  # 64 tiles, one wave half empty
        (8192, 6144, True),
    ],
)
def test_tiles_fill_the_device_or_leave_it_idle(rows: int, num_out: int, fill: bool) -> None:
    assert fills(rows, num_out, 132) == fill


def test_a_card_with_faster_memory_has_entries_of_its_own() -> None:
    x = torch.empty(24, 4096, device="meta")
    weight = torch.empty(6144, 4096, device="meta")
    narrow = torch.empty(4096, 4096, device="meta")
    with pretending(Device("sm90", 132)):
        assert config_for(x, weight) is not None
        assert config_for(x, narrow) is None
    with pretending(Device("sm90", 132, reads_fast=True)):
        assert config_for(x, weight) is None  # cuBLAS's
        assert config_for(x, narrow) == LaunchConfig(16, 64, 4, 6, block_k=128, splits=2)
        assert config_for(x[:8], weight) is not None  # as on any of the architecture
