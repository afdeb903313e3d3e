"""What the executor remembers of its running requests, in buffers that live as long as it does."""

from collections.abc import Sequence

import torch

from quire_engine.execution.base import Batch, RevisedRow, StartedRow
from quire_engine.execution.pooling import PooledRows
from quire_engine.execution.randomness import draw_uniforms
from quire_engine.execution.sampler import GREEDY_BELOW, SamplingTensors, sample
from quire_engine.execution.special_rows import Chosen, SpecialRows


class Rows:
    """Token ids, block table and sampling state of each row.

    A batch brings only changes, so a step's work here does not grow with the context.

    Parameters
    ----------
    num_rows
        Most requests at a time.
    max_model_len
        Most tokens of one request.
    block_size
        Tokens per KV block.
    """

    def __init__(self, *, num_rows: int, max_model_len: int, block_size: int) -> None:
        max_blocks = -(-max_model_len // block_size)
        self._token_ids = torch.zeros(num_rows, max_model_len, dtype=torch.int32)
        self._tables = torch.zeros(num_rows, max_blocks, dtype=torch.int32)
        self._temperature = torch.zeros(num_rows)
        self._top_k = torch.zeros(num_rows, dtype=torch.int64)
        self._top_p = torch.ones(num_rows)
        self._min_p = torch.zeros(num_rows)
        self.special = SpecialRows()
        self.pooled = PooledRows()
        self._seeds = [0] * num_rows

    def apply(self, batch: Batch) -> None:
        """Take in what changed since the step before."""
        for started in batch.started:
            self._start(started)
        for appended in batch.appended:
            end = appended.index + len(appended.block_ids)
            blocks = torch.tensor(appended.block_ids, dtype=torch.int32)
            self._tables[appended.row, appended.index : end] = blocks
        for revised in batch.revised:
            self._revise(revised)

    @property
    def block_tables(self) -> torch.Tensor:
        """All block tables: [num_rows, max_blocks], int32. Entries not in use are stale."""
        return self._tables

    def need_no_logits(self, rows: Sequence[int]) -> bool:
        """Whether all of these rows take the most likely token, and nothing else of the logits."""
        are_greedy = bool((self._temperature[list(rows)] < GREEDY_BELOW).all())
        return are_greedy and not self.special.concern(rows)

    def tables(self, rows: Sequence[int]) -> torch.Tensor:
        """Return block tables: [len(rows), max_blocks], int64. Entries not in use are stale."""
        return self._tables[torch.tensor(rows)].long()

    def input_tokens(
        self, rows: Sequence[int], num_tokens: Sequence[int], positions: torch.Tensor
    ) -> torch.Tensor:
        """Return the tokens of chunks: [num positions], int64.

        Parameters
        ----------
        rows, num_tokens
            Row and length of each chunk.
        positions
            [sum of num_tokens], int64: positions of the chunks' tokens, one chunk after another.
        """
        owners = torch.repeat_interleave(torch.tensor(rows), torch.tensor(num_tokens))
        return self._token_ids[owners, positions].long()

    def choose(self, logits: torch.Tensor, rows: Sequence[int], positions: Sequence[int]) -> Chosen:
        """Choose a token for each row, and remember it as the input of the row's next step.

        Parameters
        ----------
        logits
            [len(rows), vocab], float32; may be changed.
        positions
            Position of each row's token.
        """

        def pick(shaped: torch.Tensor) -> list[int]:
            token_ids = sample(shaped, self._sampling(rows, positions))
            self.append_tokens(rows, positions, token_ids)
            tokens: list[int] = token_ids.tolist()
            return tokens

        if self.special.concern(rows):
            return self.special.choose(logits, rows, positions, pick)
        return Chosen(pick(logits))

    def _sampling(self, rows: Sequence[int], positions: Sequence[int]) -> SamplingTensors:
        """Return how the tokens at `positions` of these rows are to be chosen."""
        index = torch.tensor(rows)
        uniforms = draw_uniforms([self._seeds[row] for row in rows], positions)
        return SamplingTensors(
            temperature=self._temperature[index],
            top_k=self._top_k[index],
            top_p=self._top_p[index],
            min_p=self._min_p[index],
            uniforms=torch.from_numpy(uniforms),
        )

    def append_tokens(
        self, rows: Sequence[int], positions: Sequence[int], token_ids: torch.Tensor
    ) -> None:
        """Remember sampled tokens, the input of these rows' next step."""
        self._token_ids[torch.tensor(rows), torch.tensor(positions)] = token_ids.int()

    def _start(self, started: StartedRow) -> None:
        row, sampling = started.row, started.sampling
        token_ids = torch.tensor(started.token_ids, dtype=torch.int32)
        self._token_ids[row, : len(token_ids)] = token_ids
        blocks = torch.tensor(started.block_ids, dtype=torch.int32)
        self._tables[row, : len(blocks)] = blocks
        self._temperature[row] = sampling.temperature
        self._top_k[row] = sampling.top_k or 0
        self._top_p[row] = sampling.top_p
        self._min_p[row] = sampling.min_p
        self.special.start(started)
        self.pooled.start(started)
        self._seeds[row] = started.seed

    def _revise(self, revised: RevisedRow) -> None:
        row, first = revised.row, revised.first_token
        token_ids = torch.tensor(revised.token_ids, dtype=torch.int32)
        self._token_ids[row, first : first + len(token_ids)] = token_ids
        first = revised.first_block
        blocks = torch.tensor(revised.block_ids, dtype=torch.int32)
        self._tables[row, first : first + len(blocks)] = blocks
