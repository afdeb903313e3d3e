"""Products of the anchor models, by whatever is chosen for a shape, alone and in a graph."""

from __future__ import annotations

import pytest
import torch

from benchmarks.gpu.linear_cases import SHAPES
from quire_kernels.ops import gated_hopper
from quire_kernels.ops.device import cuda_device
from quire_kernels.ops.linear import arrivals_of, gated_linear, linear

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


def gated_reference(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    gate, up = (x.float() @ weight.float().t()).chunk(2, 1)
    return torch.nn.functional.silu(gate) * up


@pytest.mark.parametrize("rows", [7, 1024, 1100, 2048, 5000])
@pytest.mark.parametrize("model", list(SHAPES))
def test_gated_linear(model: str, rows: int) -> None:
    num_out, num_in = SHAPES[model]["gate_up"]
    weight = (torch.randn(num_out, num_in, device="cuda") * num_in**-0.5).to(torch.bfloat16)
    x = torch.randn(rows, num_in, device="cuda").to(torch.bfloat16)
    out = gated_linear(x, weight)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        again = gated_linear(x, weight)
    graph.replay()
    graph.replay()
    expected = gated_reference(x, weight)
    eps = torch.finfo(torch.bfloat16).eps
    assert (out.float() - expected).norm() <= eps * expected.norm()
    assert torch.equal(out, again)


@pytest.mark.skipif(
    not torch.cuda.is_available() or cuda_device(0).arch != "sm90", reason="no Hopper device"
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("size", "num_in"), [(128, 64), (384, 192), (14336, 4096)])
def test_gated_tiles_of_any_number_of_rows(size: int, num_in: int, dtype: torch.dtype) -> None:
    weight = (torch.randn(2 * size, num_in, device="cuda") * num_in**-0.5).to(dtype)
    for rows in (1, 63, 64, 65, 129, 300, 2049):
        x = torch.randn(rows, num_in, device="cuda").to(dtype)
        whole = torch.full((rows + 1, size), float("nan"), device="cuda", dtype=dtype)
        gated_hopper.launch(x, weight, whole[:rows])
        expected = gated_reference(x, weight)
        eps = torch.finfo(dtype).eps
        assert (whole[:rows].float() - expected).norm() <= eps * expected.norm()
        assert whole[rows].isnan().all()
