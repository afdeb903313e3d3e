"""Narrow products, interpreted, with and without a split of the depth."""

from __future__ import annotations

import pytest
import torch

from quire_kernels.ops.linear import arrivals_of, fixed_linear, launch, linear
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
