"""A step's inputs on their way to the device: one pinned buffer, one copy.

    | decode step:  rows | positions | given tokens | context lengths, each for the widest graph |
    | other step:   tokens' arrays, sequences' arrays, samples' arrays, of this step's sizes     |
    | both, behind: block pairs to copy | changes of the rows' memory: indices, values           |

Decode steps have their arrays at fixed places, because graphs keep addresses. Every array starts
on 16 bytes, or Triton would compile kernels again for odd addresses.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from quire_engine.execution.cuda.kernels import BLOCK, fetch_kernel
from quire_engine.execution.cuda.platform import Platform
from quire_kernels.ops.launching import launch

Ints = NDArray[np.int32]
NUM_DECODE_ARRAYS = 4
MAX_FETCHED = 1 << 13
"""Most words that a kernel fetches; more come faster by the copy engine."""
MAX_IN_FLIGHT = 2
"""Steps that may be submitted and not collected."""


@dataclass(frozen=True, slots=True)
class StepTensors:
    """What one step computes; all int32 on the device."""

    token_rows: torch.Tensor
    """[num_tokens]: whose token it is."""
    positions: torch.Tensor
    """[num_tokens]"""
    given: torch.Tensor
    """[num_tokens]: the token, or -1 for its row's newest sampled one."""
    seq_rows: torch.Tensor
    """[num_seqs]: decodes first."""
    context_lens: torch.Tensor
    """[num_seqs]: tokens in the cache after this step."""
    cu_seqlens: torch.Tensor
    """[num_seqs + 1]: where each sequence's tokens start."""
    sample_rows: torch.Tensor
    """[num_samples]; the very tensor `seq_rows` is, where all sequences sample."""
    sample_positions: torch.Tensor
    """[num_samples]: position of the token to be sampled."""
    sample_index: torch.Tensor | None
    """[num_samples]: last token of each sequence that samples; None: all tokens."""
    num_decodes: int
    truncates: bool
    """Whether any row samples with top-k or top-p."""
    max_prompt_tokens: int | None = None
    """Most tokens of prompts where decodes are padded, see `AttentionBatch`; None: they are not."""


class InputBuffers:
    """A ring of pinned buffers, and the device's one.

    A buffer of the ring is written again only after a step behind it was collected: one for each
    step in flight, one for the next, and one for the padding of a capture behind each of them.

    Parameters
    ----------
    max_width
        Rows of the widest decode graph.
    capacity
        int32 words of a step, at most.
    """

    def __init__(self, platform: Platform, *, max_width: int, capacity: int) -> None:
        self._device = platform.zero_ints(capacity)
        ring = [platform.host_ints(capacity) for _ in range(2 * (MAX_IN_FLIGHT + 1))]
        self._ring = [(host, host.numpy()) for host in ring]
        self._turn = 0
        self._used = 0
        self.capacity = capacity
        self.max_width = -(-max_width // 4) * 4
        self.starts = torch.arange(self.max_width + 1, dtype=torch.int32, device=platform.device)
        """[max_width + 1] int32, device: where each token of a decode step starts."""

    def begin(self) -> None:
        """Start to fill the next buffer of the ring."""
        self._turn = (self._turn + 1) % len(self._ring)
        self._used = 0

    def room(self) -> int:
        """Words that can still be placed."""
        return self.capacity - self._used - 8

    def place(self, values: Ints) -> torch.Tensor:
        """Put an array behind the others; returns where it will be on the device."""
        start, end = self._used, self._used + values.size
        self._ring[self._turn][1][start:end] = values.reshape(-1)
        self._used = -(-end // 4) * 4
        return self._device[start:end]

    def place_decodes(
        self, rows: Ints, positions: Ints, given: Ints, *, width: int, padding_row: int
    ) -> None:
        """Put a decode step's arrays at their fixed places, padded to `width` rows."""
        count = len(rows)
        whole = self._ring[self._turn][1][: NUM_DECODE_ARRAYS * self.max_width]
        arrays = whole.reshape(NUM_DECODE_ARRAYS, self.max_width)
        arrays[0, :count] = rows
        arrays[1, :count] = positions
        arrays[2, :count] = given
        np.add(positions, 1, out=arrays[3, :count])
        if count < width:
            arrays[:, count:width] = [[padding_row], [0], [0], [1]]
        self._used = whole.size

    def decode_tensors(self, width: int, *, truncates: bool) -> StepTensors:
        """Return where the arrays of decode steps of `width` rows are on the device."""
        rows, positions, given, lengths = (
            self._device[index * self.max_width :][:width] for index in range(NUM_DECODE_ARRAYS)
        )
        return StepTensors(
            token_rows=rows,
            positions=positions,
            given=given,
            seq_rows=rows,
            context_lens=lengths,
            cu_seqlens=self.starts[: width + 1],
            sample_rows=rows,
            sample_positions=lengths,
            sample_index=None,
            num_decodes=width,
            truncates=truncates,
        )

    def send(self) -> None:
        """Copy what was placed to the device, behind the work given to it so far."""
        host = self._ring[self._turn][0]
        if self._used > MAX_FETCHED:
            self._device[: self._used].copy_(host[: self._used], non_blocking=True)
        else:
            grid = (-(-self._used // BLOCK),)
            launch(fetch_kernel, grid, host, self._device, self._used, BLOCK=BLOCK)
