"""Graphs that cannot be captured: the step that is under way must not fail with them."""

import gc
from contextlib import suppress
from typing import Any

import pytest
import torch

from quire_engine.execution.cuda.buckets import PromptShape, PromptShapes
from quire_engine.execution.cuda.capture import GraphPool, capture
from quire_engine.execution.cuda.graphs import DecodeGraphs
from quire_engine.execution.cuda.prompt_graphs import PromptGraphs
from tests.unit.execution.cuda_cases import tiny_spec


class AnyPlatform:
    """Says that it is CUDA; nothing is asked of it."""

    is_cuda = True


def test_a_graph_that_cannot_be_captured_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = []

    def capture(_self: DecodeGraphs, width: int, *, truncates: bool) -> None:
        attempts.append((width, truncates))
        raise torch.OutOfMemoryError

    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(DecodeGraphs, "_capture", capture)
    computed: list[tuple[int, bool]] = []
    platform: Any = AnyPlatform()
    graphs = DecodeGraphs(
        platform,
        lambda width, truncates: computed.append((width, truncates)),
        lambda: None,
        max_num_seqs=8,
    )
    width = graphs.width_of(1, truncates=False)

    assert graphs.capture_next()
    assert graphs.width_of(1, truncates=False) == width
    assert not graphs.capture_next()
    graphs.run(width, truncates=False)
    assert attempts == computed == [(width, False)]


def test_a_prompts_graph_that_cannot_be_captured_is_done_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attempts = []

    def capture(_self: PromptGraphs, shape: PromptShape, *, truncates: bool) -> None:
        attempts.append((shape, truncates))
        raise torch.OutOfMemoryError

    monkeypatch.setattr(PromptGraphs, "_capture", capture)
    platform: Any = AnyPlatform()
    shapes = PromptShapes(tiny_spec(), max_num_seqs=8, max_num_tokens=256)
    graphs = PromptGraphs(platform, lambda _shape, _truncates: lambda: None, shapes, None)

    for _ in range(2):
        assert graphs.find(100, 3, 1, truncates=True) is None
    assert graphs.capture_next()
    assert graphs.find(100, 3, 1, truncates=True) is None
    assert not graphs.capture_next()
    assert attempts == [(PromptShape(128, 8), True)]


class Recording:
    """Stands for a graph where there is no device."""

    def capture_begin(self, **_how: object) -> None:
        pass

    def capture_end(self) -> None:
        pass


@pytest.mark.parametrize("fails", [False, True])
def test_no_garbage_is_collected_while_a_graph_is_captured(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Recording)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    collecting: list[bool] = []

    def compute() -> None:
        collecting.append(gc.isenabled())
        if fails and len(collecting) == 2:
            raise torch.OutOfMemoryError

    with suppress(torch.OutOfMemoryError):
        capture(compute, GraphPool())
    assert collecting == [True, False]
    assert gc.isenabled()


def test_without_prompt_graphs_there_is_no_shape() -> None:
    shapes = PromptShapes(tiny_spec(), max_num_seqs=8, max_num_tokens=256, has_graphs=False)
    assert shapes.widest is None
    assert shapes.find(100, 3, 1) is None
    assert shapes.all() == []
    assert shapes.padded_tokens == ()
