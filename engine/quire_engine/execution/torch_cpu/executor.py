"""The executor of the CPU: exact float32, every operator one of torch's own."""

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from quire_engine.config import EngineConfig
from quire_engine.execution.base import Batch, Chunks, Executor, Progress, StepResult
from quire_engine.execution.memory import lazy_zeros
from quire_engine.execution.sampler import find_not_finite
from quire_engine.execution.special_rows import scored_pieces
from quire_engine.execution.torch_cpu.capacity import choose_max_model_len, count_blocks
from quire_engine.execution.torch_cpu.rows import Rows
from quire_engine.models.attention import PagedAttention
from quire_engine.models.attention_plan import CacheLayout, plan_attention, token_positions
from quire_engine.models.decoder import Decoder, load_decoder_weights
from quire_engine.models.loading.weights import open_weights
from quire_engine.protocol.messages import ModelFacts
from quire_engine.protocol.sampling import TokenLogprobs

_STAGE = "reading weights"


@dataclass(frozen=True, slots=True)
class _State:
    """What exists once the KV memory is allocated."""

    layout: CacheLayout
    cache: torch.Tensor
    """[num_blocks + 1, num_layers, 2, num_kv_heads, block_size, head_dim], float32."""
    attention: PagedAttention
    rows: Rows


class TorchExecutor(Executor):
    """Computes with torch on a CPU, in float32.

    Parameters
    ----------
    config
        `executor.num_threads` sets torch's threads, for the whole process.
    model_path
        A GGUF file, or a Hugging Face folder.
    """

    def __init__(self, config: EngineConfig, model_path: Path) -> None:
        self._config = config
        self._model_path = model_path
        self._decoder: Decoder | None = None
        self._state: _State | None = None

    def load(self, progress: Progress) -> None:
        """Read, dequantise and fuse the weights; see `Executor.load`.

        Raises
        ------
        ConfigError
            max_model_len exceeds the model's context length.
        """
        torch.set_num_threads(self._config.executor.num_threads or num_usable_cores())
        progress(_STAGE, 0.0)
        source = open_weights(self._model_path)
        max_model_len = choose_max_model_len(self._config, source.spec)
        weights = load_decoder_weights(source, lambda done: progress(_STAGE, done))
        self._decoder = Decoder(source.spec, weights, max_model_len)

    def allocate_cache(self) -> ModelFacts:
        """Allocate the KV memory; see `Executor.allocate_cache`."""
        decoder = self._loaded()
        spec, max_model_len = decoder.spec, decoder.num_positions
        block_size = self._config.cache.block_size
        num_blocks = count_blocks(self._config, spec, max_model_len)
        layout = CacheLayout(spec.num_layers, spec.num_kv_heads, block_size, spec.head_dim)
        cache = lazy_zeros(layout.shape(num_blocks + 1), torch.float32)
        rows = Rows(
            num_rows=self._config.scheduler.max_num_seqs,
            max_model_len=max_model_len,
            block_size=block_size,
        )
        attention = PagedAttention(
            cache, layout, scale=spec.softmax_scale, softcap=spec.attention_softcap
        )
        self._state = _State(layout, cache, attention, rows)
        return ModelFacts(
            max_model_len=max_model_len,
            vocab_size=spec.vocab_size,
            num_blocks=num_blocks,
            block_size=block_size,
            embedding_size=spec.hidden_size,
        )

    @torch.inference_mode()
    def run(self, batch: Batch) -> StepResult:
        """Compute one batch; see `Executor.run`."""
        state = self._allocated()
        state.rows.apply(batch)
        for source, destination in batch.copies:
            # in order: a copy may be the source of the next
            state.cache[destination] = state.cache[source]
        if not len(batch.chunks):
            return StepResult([])
        pooled = state.rows.pooled.find(batch.chunks)
        if not pooled:
            return self._compute(state, batch.chunks)
        decoder = self._loaded()
        return state.rows.pooled.compute(
            batch.chunks,
            pooled,
            compute_chunks=lambda some: self._compute(state, some),
            compute_states=lambda some: decoder.final_states(self._forward(state, some)),
        )

    def describe(self) -> str:
        """Name the library, for it is the slower way."""
        return "CPU, PyTorch, float32"

    def close(self) -> None:
        """Let go of weights and KV memory."""
        self._decoder = None
        self._state = None

    def _compute(self, state: _State, chunks: Chunks) -> StepResult:
        """Compute all chunks, and choose a token for each that samples."""
        hidden = self._forward(state, chunks)
        scores = self._score_prompts(state, chunks, hidden)
        result = self._sample(state, chunks, hidden)
        result.prompt_logprobs = scores
        return result

    def _forward(self, state: _State, chunks: Chunks) -> torch.Tensor:
        """Compute all chunks; returns the hidden states of all tokens."""
        positions = token_positions(chunks.starts, chunks.num_tokens)
        tables = state.rows.tables(chunks.rows)
        where = (state.layout, tables, chunks.starts, chunks.num_tokens, chunks.num_decodes)
        decoder = self._loaded()
        plans = {window: plan_attention(*where, window) for window in decoder.spec.windows}
        token_ids = state.rows.input_tokens(chunks.rows, chunks.num_tokens, positions)
        return decoder.forward(token_ids, positions, state.attention, plans)

    def _sample(self, state: _State, chunks: Chunks, hidden: torch.Tensor) -> StepResult:
        """Choose a token for each chunk that samples, from its last token's hidden state."""
        sampling = [index for index, samples in enumerate(chunks.samples) if samples]
        if not sampling:
            return StepResult([])
        ends = torch.tensor(chunks.num_tokens).cumsum(0) - 1
        rows = [chunks.rows[index] for index in sampling]
        positions = [chunks.starts[index] + chunks.num_tokens[index] for index in sampling]
        logits = self._loaded().logits(hidden[ends[sampling]])
        not_finite = find_not_finite(logits)
        chosen = state.rows.choose(logits, rows, positions)
        return StepResult(
            chosen.token_ids,
            chosen.logprobs,
            not_finite=not_finite + chosen.impossible,
        )

    def _score_prompts(
        self, state: _State, chunks: Chunks, hidden: torch.Tensor
    ) -> dict[int, list[TokenLogprobs]] | None:
        """Score the prompts of rows that want it, a piece at a time; None if none does."""
        special, decoder = state.rows.special, self._loaded()
        scores: dict[int, list[TokenLogprobs]] = {}
        for index in special.scored_chunks(chunks):
            row, start = chunks.rows[index], chunks.starts[index]
            offset = sum(chunks.num_tokens[:index])
            scores[row] = []
            for done, count in scored_pieces(chunks.num_tokens[index]):
                first = offset + done
                logits = decoder.logits(hidden[first : first + count])
                scores[row] += special.score_prompt(row, start + done, logits)
        return scores or None

    def _loaded(self) -> Decoder:
        if self._decoder is None:
            raise RuntimeError("bug: the executor is used before `load` or after `close`")
        return self._decoder

    def _allocated(self) -> _State:
        if self._state is None:
            raise RuntimeError("bug: the executor runs before `allocate_cache` or after `close`")
        return self._state


def num_usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
