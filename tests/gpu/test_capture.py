"""Captures that something spoils: another executor's garbage, a call that no capture stands."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable

import pytest
import torch

from quire_engine.errors import ConfigError
from quire_engine.execution.cuda.capture import GraphPool, capture
from quire_engine.execution.cuda.executor import CudaExecutor
from quire_engine.execution.cuda.step import StepProgram
from quire_engine.execution.cuda.weights import FileWeights
from tests.gpu.test_executor import CONFIG, generate, prompts, source_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
SIZE = 1 << 20


class Work:
    """Adds one to a tensor, by way of memory of its own, and does something besides."""

    def __init__(self, besides: Callable[[bool], object] = lambda _captured: None) -> None:
        self.total = torch.zeros(SIZE, device="cuda")
        self._besides = besides
        torch.cuda.synchronize()  # the streams of captures wait for no other

    def __call__(self) -> None:
        more = self.total + 1
        self._besides(torch.cuda.is_current_stream_capturing())
        self.total.copy_(more)


def captured(work: Work, pool: GraphPool | None = None) -> torch.cuda.CUDAGraph:
    with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
        return capture(work, pool or GraphPool())


def check_runs(graph: torch.cuda.CUDAGraph, work: Work) -> None:
    torch.cuda.synchronize()
    before = float(work.total[0])
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert work.total.eq(before + 3).all()


def test_a_graph_that_nobody_needs_any_more_is_not_destroyed_within_a_capture() -> None:
    old = [captured(Work())]

    def leave_garbage(is_captured: bool) -> None:
        if is_captured:
            cycle: list[object] = [old.pop()]
            cycle.append(cycle)
            del cycle
            for _ in range(2000):
                list[object]().append([])

    thresholds = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        work = Work(leave_garbage)
        graph = captured(work)
    finally:
        gc.set_threshold(*thresholds)
    assert not old
    check_runs(graph, work)


def test_a_capture_that_is_spoilt_is_tried_again_and_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    num_spoilt = 0

    def spoil_once(is_captured: bool) -> None:
        nonlocal num_spoilt
        if is_captured and num_spoilt == 0:
            num_spoilt += 1
            torch.cuda.synchronize()

    pool = GraphPool()
    work = Work(spoil_once)
    with caplog.at_level(logging.WARNING):
        graph = captured(work, pool)
    assert num_spoilt == 1
    assert "spoilt and is tried again: CUDA error: operation not permitted" in caplog.text
    check_runs(graph, work)


def test_a_capture_that_is_always_spoilt_fails_with_the_reason_and_the_pool_serves_on() -> None:
    def spoil(is_captured: bool) -> None:
        if is_captured:
            torch.cuda.synchronize()

    pool = GraphPool()
    with pytest.raises(RuntimeError, match="operation not permitted when stream is capturing"):
        captured(Work(spoil), pool)
    work = Work()
    check_runs(captured(work, pool), work)
    torch.cuda.empty_cache()  # which torch refuses while it thinks that a capture goes on


def test_a_start_whose_graphs_cannot_be_captured_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = StepProgram.compute

    def compute(program: StepProgram, step: object) -> None:
        usual(program, step)  # type: ignore[arg-type]
        if torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize()

    executor = CudaExecutor(CONFIG, FileWeights(source_of("llama3")))
    executor.load(lambda _stage, _fraction: None)
    with monkeypatch.context() as patched:
        patched.setattr(StepProgram, "compute", compute)
        message = (
            "the GPU failed while the first CUDA graphs were captured: .*Error: CUDA error: "
            "operation not permitted when stream is capturing"
        )
        with pytest.raises(ConfigError, match=message):
            executor.allocate_cache()
    # the process is as good as before
    executor.allocate_cache()
    texts = prompts([20, 3], 5003)
    assert len(generate(executor, texts, 3)) == 2
    executor.close()
