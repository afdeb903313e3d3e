"""Steps with prompts captured as CUDA graphs, one per shape; missing ones come in between.

Their memory is that of the decodes' graphs. A step whose graph is missing runs kernel by kernel,
without padding; one whose shape has none, always.
"""

import logging
from collections.abc import Callable

import torch

from quire_engine.execution.cuda.buckets import PromptShape, PromptShapes
from quire_engine.execution.cuda.capture import GraphPool, capture
from quire_engine.execution.cuda.inputs import StepTensors
from quire_engine.execution.cuda.platform import Platform

_log = logging.getLogger(__name__)

Key = tuple[PromptShape, bool]
"""(shape, whether any row samples with top-k or top-p)."""
Pad = Callable[[PromptShape, bool], Callable[[], None]]
"""Puts a step of padding alone into a shape's inputs; what it returns computes such steps."""


class PromptGraphs:
    """Runs steps with prompts from a graph, where there is one.

    Parameters
    ----------
    pad
        Called before a capture.
    pool
        Memory of the decodes' graphs; None on a CPU, which has no graphs.
    """

    def __init__(
        self, platform: Platform, pad: Pad, shapes: PromptShapes, pool: GraphPool | None
    ) -> None:
        self._platform = platform
        self._pad = pad
        self.shapes = shapes
        self._pool = pool
        self._graphs: dict[Key, torch.cuda.CUDAGraph] = {}
        self._wanted: dict[Key, None] = {}
        self._failed: set[Key] = set()
        """Captures that failed and are not tried again."""
        self.num_hits = 0
        """Steps that ran from a graph."""

    def find(
        self, num_tokens: int, num_decodes: int, num_prompts: int, *, truncates: bool
    ) -> PromptShape | None:
        """Return the shape to pad a step to; None: it is to run kernel by kernel."""
        if not self._platform.is_cuda:
            return None
        shape = self.shapes.find(num_tokens, num_decodes, num_prompts)
        if shape is None or (shape, truncates) in self._graphs:
            return shape
        if (shape, truncates) not in self._failed:
            self._wanted[shape, truncates] = None
        return None

    def run(self, shape: PromptShape, step: StepTensors) -> None:
        """Run a step whose inputs, padded to a shape that `find` returned, are on their way."""
        self.num_hits += 1
        self._graphs[shape, step.truncates].replay()

    def capture_first(self) -> None:
        """Capture the widest, into whose memory the others fit."""
        if (widest := self.shapes.widest) is not None:
            self._capture(widest, truncates=False)

    def capture_rest(self) -> None:
        """Capture all that is missing for steps without truncation, for measurements."""
        for shape in self.shapes.all():
            if (shape, False) not in self._graphs:
                self._capture(shape, truncates=False)

    def capture_next(self) -> bool:
        """Capture one graph that a step has missed, between steps; False if all are there."""
        if not self._wanted:
            return False
        shape, truncates = key = next(iter(self._wanted))
        del self._wanted[key]
        try:
            self._capture(shape, truncates=truncates)
        except Exception as error:  # noqa: BLE001 - an error that stays shows when steps are collected
            _log.error(
                "the graph of %d tokens, %d decodes among them, cannot be captured; steps run "
                "without it",
                shape.num_tokens,
                shape.num_decodes,
                exc_info=error,
            )
            self._failed.add(key)
        return True

    def _capture(self, shape: PromptShape, *, truncates: bool) -> None:
        if self._pool is not None:
            with self._platform.on_stream():
                compute = self._pad(shape, truncates)
                self._graphs[shape, truncates] = capture(compute, self._pool)
