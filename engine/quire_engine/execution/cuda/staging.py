"""Copies of mapped files onto the device, through memory that the device reads by itself.

A copy from a mapped file waits for the disk and for the driver's own buffer, a piece after the
other. Here each thread fills a buffer while the device reads the one before it.
"""

import threading

import numpy as np
import torch
from numpy.typing import NDArray

from quire_engine.execution.cuda.platform import Event, Platform

PIECE_BYTES = 16 << 20
_NUM_BUFFERS = 2
"""Of each thread."""

Bytes = NDArray[np.uint8]


class Staging:
    """Copies tensors of the CPU to the device; any thread may, on the platform's stream."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._own = threading.local()

    def copy(self, values: torch.Tensor, target: torch.Tensor) -> None:
        """Copy; what `values` holds may change once this returns.

        Parameters
        ----------
        values
            Any shape and type, CPU.
        target
            The same shape, contiguous, device; converted to its type.
        """
        if not self._platform.is_cuda or not values.numel():
            target.copy_(values)
            return
        bytes_of = values.to(target.dtype).contiguous().view(-1).view(torch.uint8).numpy()
        goal = target.view(-1).view(torch.uint8)
        for first in range(0, len(bytes_of), PIECE_BYTES):
            piece = bytes_of[first : first + PIECE_BYTES]
            pinned, memory, is_read = self._next_buffer()
            is_read.wait()
            np.copyto(memory[: len(piece)], piece)
            goal[first : first + len(piece)].copy_(pinned[: len(piece)], non_blocking=True)
            is_read.record()

    def close(self) -> None:
        """Give the pinned memory back; no copy is under way."""
        self._own = threading.local()
        if self._platform.is_cuda:
            torch.cuda.synchronize()
            torch._C._host_emptyCache()

    def _next_buffer(self) -> tuple[torch.Tensor, Bytes, Event]:
        own = self._own
        if not hasattr(own, "buffers"):
            tensors = [
                torch.empty(PIECE_BYTES, dtype=torch.uint8, pin_memory=True)
                for _ in range(_NUM_BUFFERS)
            ]
            own.buffers = [(each, each.numpy(), Event(self._platform)) for each in tensors]
            own.turn = 0
        own.turn = (own.turn + 1) % _NUM_BUFFERS
        buffer: tuple[torch.Tensor, Bytes, Event] = own.buffers[own.turn]
        return buffer
