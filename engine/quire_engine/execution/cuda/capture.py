"""Captures of CUDA graphs, and what must not happen meanwhile.

A capture ends with an error when the thread loads a kernel, frees or allocates memory of the
device outside of the capture's pool, waits for the device, or destroys a graph. The first two
happen when work runs for the first time, so it runs once before. The last one is what Python's
collector does with another executor's graphs, at any moment: it is off during captures. What
other threads do is not looked at.
"""

import gc
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from quire_engine.paused_collection import no_garbage_collected
from quire_kernels.errors import KernelError

_log = logging.getLogger(__name__)


class GraphPool:
    """Memory of the device that graphs share, which never run at the same time.

    A capture that is spoilt leaves torch before 2.13 as if it went on: no other can begin in its
    pool, and the device's cache cannot be emptied. So the pool is ended, and another one begun.
    """

    def __init__(self) -> None:
        self.handle: Any = torch.cuda.graph_pool_handle()  # torch gives the type no public name

    def renew(self) -> None:
        """Leave the memory to the graphs that have it, and take another from here on."""
        with suppress(RuntimeError):
            torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), self.handle)
        self.handle = torch.cuda.graph_pool_handle()


def capture(compute: Callable[[], None], pool: GraphPool) -> torch.cuda.CUDAGraph:
    """Run work on the current stream, and once more to capture it.

    A capture that was spoilt is tried once more, with nothing left to collect and nothing running.

    Raises
    ------
    Exception
        What `compute` raised in the second capture, or what ended it.
    """
    compute()
    try:
        return _capture(compute, pool)
    except (KernelError, torch.OutOfMemoryError):
        raise  # it would come again
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        _log.warning("the capture of a CUDA graph was spoilt and is tried again: %s", reason)
    gc.collect()
    torch.cuda.synchronize()  # raises if the device is lost
    compute()
    return _capture(compute, pool)


def _capture(compute: Callable[[], None], pool: GraphPool) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with no_garbage_collected():
        # thread_local: another thread's work must not spoil the capture
        graph.capture_begin(pool=pool.handle, capture_error_mode="thread_local")
        try:
            compute()
        except BaseException:
            with suppress(RuntimeError):  # the reason is what compute raised
                _end(graph, pool)
            raise
        _end(graph, pool)
    return graph


def _end(graph: torch.cuda.CUDAGraph, pool: GraphPool) -> None:
    try:
        graph.capture_end()
    except RuntimeError:
        pool.renew()
        raise
