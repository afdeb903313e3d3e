"""What the device remembers of its running requests, and the changes on their way to it.

One int32 allocation, so that any change is (index, value) and all of a step travel together:

    | block tables: (num_rows + 1) x max_blocks | sampling state: x 8 words | newest tokens: x 1 |

The last row is the padding's: its table is all null blocks, it is greedy, nobody reads its token.
"""

import struct
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from quire_engine.execution.base import Batch, RevisedRow, StartedRow
from quire_engine.execution.cuda.kernels import BLOCK, WORDS_PER_ROW, write_kernel
from quire_engine.execution.cuda.platform import Platform
from quire_engine.execution.pooling import PooledRows
from quire_engine.execution.special_rows import SpecialRows
from quire_kernels.ops.launching import launch

Ints = NDArray[np.int32]


class RowMemory:
    """Block tables, sampling state and newest tokens on the device; prompts on the host.

    Parameters
    ----------
    num_rows
        Most requests at a time; row `num_rows` is the padding's.
    max_model_len
        Most tokens of one request.
    block_size
        Tokens per KV block.
    """

    def __init__(
        self, platform: Platform, *, num_rows: int, max_model_len: int, block_size: int
    ) -> None:
        self.padding_row = num_rows
        self.block_size = block_size
        self.max_model_len = max_model_len
        # whole 64 bytes, so that every row of the table starts at an even address
        num_blocks = -(-max_model_len // block_size)
        self.max_blocks = -(-num_blocks // 16) * 16
        rows = num_rows + 1
        self._state_at = rows * self.max_blocks
        self._memory = platform.zero_ints(self._state_at + rows * (WORDS_PER_ROW + 1))
        self.tables = self._memory[: self._state_at].view(rows, self.max_blocks)
        """[num_rows + 1, max_blocks] int32, device."""
        self.newest = self._memory[self._state_at + rows * WORDS_PER_ROW :]
        """[num_rows + 1] int32, device: each row's newest sampled token."""
        self.state = self._memory[self._state_at : self._state_at + rows * WORDS_PER_ROW]
        """[(num_rows + 1) * WORDS_PER_ROW] int32, device."""
        # pages of rows that are never used cost nothing: the system gives them at the first write
        self.tokens: Ints = np.zeros((rows, max_model_len), np.int32)
        """Known tokens of each row, on the host: those it started with, and those collected."""
        self.num_given: Ints = np.zeros(rows, np.int32)
        """How many tokens of each row came from the host: at its start, or by a revision."""
        self.truncates = np.zeros(rows, np.bool_)
        """Whether a row samples with top-k, top-p or min-p."""
        self.special = SpecialRows()
        """Rows whose steps take more than the kernels that a graph captures."""
        self.pooled = PooledRows()
        """Rows that want an embedding."""
        self._changes: dict[int, int] = {}

    def apply(self, batch: Batch) -> None:
        """Take in what changed since the step before; the device hears of it by `changes`."""
        for started in batch.started:
            self._start(started)
        for appended in batch.appended:
            first = appended.row * self.max_blocks + appended.index
            self._change(first, appended.block_ids)
        for revised in batch.revised:
            self._revise(revised)

    def changes(self) -> tuple[Ints, Ints]:
        """Return indices and values that the device does not have yet."""
        count = len(self._changes)
        indices = np.fromiter(self._changes.keys(), np.int32, count)
        return indices, np.fromiter(self._changes.values(), np.int32, count)

    def forget_changes(self) -> None:
        """The changes are on their way; before that, a failed step must not lose them."""
        self._changes.clear()

    def write(self, indices: torch.Tensor, values: torch.Tensor) -> None:
        """Put changes into the device's memory.

        Parameters
        ----------
        indices, values
            [num_changes] int32, device.
        """
        count = len(indices)
        grid = (-(-count // BLOCK),)
        launch(write_kernel, grid, self._memory, indices, values, count, BLOCK=BLOCK)

    def remember(self, rows: Ints, positions: Ints, token_ids: Ints) -> None:
        """Keep collected tokens, for chunks that compute them anew.

        A row may have been given to another request since; that one's own tokens stay.
        """
        inside = (positions < self.max_model_len) & (positions >= self.num_given[rows])
        self.tokens[rows[inside], positions[inside]] = token_ids[inside]

    def _start(self, started: StartedRow) -> None:
        row = started.row
        count = len(started.token_ids)
        self.tokens[row, :count] = started.token_ids
        self.num_given[row] = count
        self._change(row * self.max_blocks, started.block_ids)
        sampling = started.sampling
        self.truncates[row] = bool(sampling.top_k) or sampling.top_p < 1.0 or sampling.min_p > 0.0
        self.special.start(started)
        self.pooled.start(started)
        words = struct.pack(
            "<fffiQ",
            *(sampling.temperature, sampling.top_p, sampling.min_p),
            min(sampling.top_k or 0, 2**31 - 1),
            started.seed & (2**64 - 1),
        )
        self._change(self._state_at + row * WORDS_PER_ROW, struct.unpack("<6i", words))

    def _revise(self, revised: RevisedRow) -> None:
        row, end = revised.row, revised.first_token + len(revised.token_ids)
        self.tokens[row, revised.first_token : end] = revised.token_ids
        self.num_given[row] = end
        self._change(row * self.max_blocks + revised.first_block, revised.block_ids)

    def _change(self, first: int, values: Sequence[int]) -> None:
        self._changes.update(zip(range(first, first + len(values)), values, strict=True))
