"""Graphs that cannot be captured: the step that is under way must not fail with them."""

from typing import Any

import pytest
import torch

from quire_engine.execution.cuda.graphs import DecodeGraphs


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
