"""Decode steps captured as CUDA graphs, one per width; widths that are missing come in between.

All graphs share one memory pool: they never run at the same time, and what each leaves there
nobody reads. The widest is captured first, so that the others fit into its memory. A step whose
graph is missing runs padded in a wider one meanwhile.
"""

import logging
from collections.abc import Callable

import torch

from quire_engine.execution.cuda.buckets import first_widths, graph_widths, width_for
from quire_engine.execution.cuda.capture import GraphPool, capture
from quire_engine.execution.cuda.platform import Platform

_log = logging.getLogger(__name__)

Compute = Callable[[int, bool], None]
"""Gives the work of a decode step of (width, truncates) to the device."""


class DecodeGraphs:
    """Runs decode steps, from a graph where there is one wide enough.

    Parameters
    ----------
    compute
        Runs a step without a graph. Called on padding rows alone before a capture, so that
        kernels are compiled by then.
    fill_padding
        Puts padding rows into the decode inputs on the device.
    """

    def __init__(
        self,
        platform: Platform,
        compute: Compute,
        fill_padding: Callable[[], None],
        *,
        max_num_seqs: int,
    ) -> None:
        self._platform = platform
        self._compute = compute
        self._fill_padding = fill_padding
        self.widths = graph_widths(max_num_seqs)
        self._graphs: dict[bool, dict[int, torch.cuda.CUDAGraph]] = {False: {}, True: {}}
        self.pool = GraphPool() if platform.is_cuda else None
        """Memory that all graphs share; None on a CPU, which has no graphs."""
        self._wanted: list[tuple[int, bool]] = []
        self._failed: set[tuple[int, bool]] = set()
        """Captures that failed and are not tried again."""
        self.num_hits = 0
        """Steps that ran from a graph, those of measurements included."""
        self.num_misses = 0

    @property
    def num_captured(self) -> int:
        """How many graphs there are."""
        return sum(map(len, self._graphs.values()))

    def capture_first(self) -> None:
        """Capture what must be there before the engine is ready."""
        if self._platform.is_cuda:
            for width in first_widths(self.widths):
                self._capture(width, truncates=False)

    def capture_rest(self) -> None:
        """Capture all that is missing for steps without truncation, for measurements."""
        if self._platform.is_cuda:
            for width in self.widths:
                if width not in self._graphs[False]:
                    self._capture(width, truncates=False)

    def capture_next(self) -> bool:
        """Capture one graph that a step has missed; False if all are there.

        Between steps, while the device is busy with one: the host has nothing else to do then. One
        that cannot be captured, for want of memory say, is nobody's fault: steps of its width run
        as they did before.
        """
        if not self._platform.is_cuda or not self._wanted:
            return False
        width, truncates = self._wanted.pop(0)
        try:
            self._capture(width, truncates=truncates)
        except Exception as error:  # noqa: BLE001 - an error that stays shows when steps are collected
            _log.error(
                "the graph of %d rows cannot be captured; steps run without it",
                width,
                exc_info=error,
            )
            self._failed.add((width, truncates))
        return True

    def width_of(self, num_rows: int, *, truncates: bool) -> int:
        """Return the width to run so many rows in: that of a graph, if one is wide enough."""
        exact = width_for(self.widths, num_rows)
        if exact is None:
            raise RuntimeError(f"bug: {num_rows} rows in a step of at most {self.widths[-1]}")
        if not self._platform.is_cuda or exact in self._graphs[truncates]:
            return exact
        self._want(exact, truncates)
        return width_for(self._graphs[truncates], num_rows) or exact

    def run(self, width: int, *, truncates: bool) -> None:
        """Run the step whose inputs are on their way to the device."""
        graph = self._graphs[truncates].get(width)
        if graph is None:
            self.num_misses += 1
            self._compute(width, truncates)
        else:
            self.num_hits += 1
            graph.replay()

    def _want(self, width: int, truncates: bool) -> None:
        """Put a graph in line."""
        if (width, truncates) not in self._wanted and (width, truncates) not in self._failed:
            self._wanted.append((width, truncates))

    def _capture(self, width: int, *, truncates: bool) -> None:
        if self.pool is not None:
            with self._platform.on_stream():
                self._fill_padding()
                graph = capture(lambda: self._compute(width, truncates), self.pool)
            self._graphs[truncates][width] = graph
