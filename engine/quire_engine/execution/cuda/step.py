"""One step from row numbers to sampled tokens, all on the device: what a graph captures."""

import torch

from quire_engine.execution.cuda.buckets import MAX_PROMPTS
from quire_engine.execution.cuda.inputs import StepTensors
from quire_engine.execution.cuda.kernels import (
    BLOCK,
    TABLE_BLOCK,
    WORDS_PER_ROW,
    gather_kernel,
    locate_kernel,
    store_kernel,
)
from quire_engine.execution.cuda.model import CudaDecoder
from quire_engine.execution.cuda.platform import Platform
from quire_engine.execution.cuda.row_memory import RowMemory
from quire_kernels.ops.attention_batch import AttentionBatch
from quire_kernels.ops.launching import launch as launch_kernel
from quire_kernels.ops.sampling import SamplingParameters, sample


class StepProgram:
    """Computes steps into persistent outputs; makes no host synchronization.

    Parameters
    ----------
    max_num_seqs
        Most sequences of a step.
    """

    def __init__(
        self, platform: Platform, decoder: CudaDecoder, rows: RowMemory, *, max_num_seqs: int
    ) -> None:
        self._decoder = decoder
        self._rows = rows
        size = -(-(max_num_seqs + MAX_PROMPTS) // 4) * 4  # padded steps have as many more
        self._tables = platform.zero_ints(size * rows.max_blocks).view(size, rows.max_blocks)
        self._knobs = platform.zero_ints(4 * size).view(4, size)
        self._seeds = platform.zero_ints(2 * size)
        self.sampled = platform.zero_ints(size)
        """[max_num_seqs + padding] int32, device: the newest step's tokens, as its samples lie."""

    @torch.inference_mode()
    def compute(self, step: StepTensors) -> None:
        """Run a step; its sampled tokens are in `sampled` and with their rows."""
        hidden = self.forward(step, step.sample_index)
        if len(step.sample_rows):
            self.sample(step, self._decoder.logits(hidden))

    def forward(self, step: StepTensors, keep: torch.Tensor | None) -> torch.Tensor:
        """Run all layers; returns [num_kept, hidden] of the tokens in `keep`, or of all."""
        rows = self._rows
        num_tokens, num_samples = len(step.token_rows), len(step.sample_rows)
        token_ids, slots = torch.empty_like(step.given), torch.empty_like(step.given)
        launch_kernel(
            locate_kernel, (-(-num_tokens // BLOCK),),
            step.token_rows, step.positions, step.given, rows.newest, rows.tables,
            token_ids, slots, num_tokens, rows.max_blocks,
            BLOCK_SIZE=rows.block_size, BLOCK=BLOCK, dependent=True, num_warps=4,
        )  # fmt: skip
        samples_all = step.sample_rows is step.seq_rows
        self._gather(step.seq_rows, step.context_lens, table=True, knobs=samples_all)
        if num_samples and not samples_all:
            self._gather(step.sample_rows, step.context_lens, table=False, knobs=True)
        batch = AttentionBatch(
            step.cu_seqlens,
            step.context_lens,
            self._tables,
            num_decodes=step.num_decodes,
            max_context_len=rows.max_model_len,
            max_prefill_tokens=step.max_prompt_tokens,
        )
        return self._decoder.forward(token_ids, step.positions, slots, batch, keep)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Score the vocabulary: [num_rows, vocab], in the model's type."""
        return self._decoder.logits(hidden)

    def _gather(
        self, sequences: torch.Tensor, lengths: torch.Tensor, *, table: bool, knobs: bool
    ) -> None:
        rows = self._rows
        launch_kernel(
            gather_kernel, (len(sequences),),
            sequences, lengths, rows.tables, self._tables, rows.max_blocks,
            rows.state, self._knobs, self._seeds, self._knobs.shape[1],
            TABLE=table, KNOBS=knobs, BLOCK_SIZE=rows.block_size, TABLE_BLOCK=TABLE_BLOCK,
            WORDS=WORDS_PER_ROW, dependent=True, num_warps=1,
        )  # fmt: skip

    def sample(self, step: StepTensors, logits: torch.Tensor) -> None:
        """Choose a token for each row of logits that samples, in the order of `sample_rows`."""
        count = len(step.sample_rows)
        floats = self._knobs.view(torch.float32)[:, :count]
        parameters = SamplingParameters(
            temperature=floats[0],
            top_p=floats[1],
            min_p=floats[2],
            top_k=self._knobs[3, :count],
            seeds=self._seeds.view(torch.int64)[:count],
            positions=step.sample_positions,
            truncates=step.truncates,
            fixed=self._decoder.is_fixed,
        )
        sampled = self.sampled[:count]
        sample(logits, parameters, out=sampled)
        launch_kernel(
            store_kernel, (-(-count // BLOCK),),
            step.sample_rows, sampled, self._rows.newest, count,
            BLOCK=BLOCK, dependent=True, num_warps=4,
        )  # fmt: skip
