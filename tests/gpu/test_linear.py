"""Narrow products of the anchor models, by whatever the table chooses, alone and in a graph."""

from __future__ import annotations

import pytest
import torch

from benchmarks.gpu.linear_cases import SHAPES
from quire_kernels.ops.linear import arrivals_of, linear

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize("rows", [1, 3, 8, 16, 31, 100])
@pytest.mark.parametrize("layer", ["qkv", "o", "gate_up", "down"])
@pytest.mark.parametrize("model", list(SHAPES))
def test_linear(model: str, layer: str, rows: int) -> None:
    num_out, num_in = SHAPES[model][layer]
    weight = torch.randn(num_out, num_in, device="cuda").to(torch.bfloat16)
    x = torch.randn(rows, num_in, device="cuda").to(torch.bfloat16)
    out = torch.full((rows, num_out), float("nan"), device="cuda", dtype=torch.bfloat16)
    linear(x, weight, out=out)
    graph = torch.cuda.CUDAGraph()
    again = torch.full_like(out, float("nan"))
    with torch.cuda.graph(graph):
        linear(x, weight, out=again)
    graph.replay()
    graph.replay()
    expected = x.float() @ weight.float().t()
    eps = torch.finfo(torch.bfloat16).eps
    assert (out.float() - expected).norm() <= eps * expected.norm()
    assert torch.equal(out, again)
    assert not arrivals_of(x).any()
