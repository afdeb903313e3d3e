"""Computes on a CPU with the C++ kernels: one call a step."""

from dataclasses import dataclass

import torch

from quire_engine.config import EngineConfig
from quire_engine.execution.base import Batch, Chunks, Executor, Progress, StepResult
from quire_engine.execution.memory import lazy_zeros
from quire_engine.execution.native_cpu.limits import Limits
from quire_engine.execution.native_cpu.loading import decoder_shape, load_decoder
from quire_engine.execution.native_cpu.matrices import open_matrices
from quire_engine.execution.native_cpu.precision import PRECISIONS
from quire_engine.execution.native_cpu.scoring import compute_scored
from quire_engine.execution.sampler import find_not_finite
from quire_engine.execution.torch_cpu.capacity import choose_max_model_len, count_blocks
from quire_engine.execution.torch_cpu.executor import num_usable_cores
from quire_engine.execution.torch_cpu.rows import Rows
from quire_engine.models.attention_plan import CacheLayout, token_positions
from quire_engine.models.config import ModelSpec
from quire_engine.models.loading.base import WeightSource
from quire_engine.protocol.messages import ModelFacts
from quire_kernels.cpu import Decoder, StepInputs, Team

_STAGE = "reading weights"


@dataclass(frozen=True, slots=True)
class _Model:
    """What exists once the weights are read."""

    spec: ModelSpec
    max_model_len: int
    team: Team
    decoder: Decoder


@dataclass(frozen=True, slots=True)
class _State:
    """What exists once the KV memory is allocated."""

    cache: torch.Tensor
    """[num_blocks + 1, num_layers, 2, num_kv_heads, block_size, head_dim]."""
    rows: Rows
    limits: Limits


class NativeExecutor(Executor):
    """Computes with the C++ kernels, in the precision that `model.dtype` names.

    A row's decodes depend neither on what else is in the batch nor on the number of threads.

    Parameters
    ----------
    config
        `executor.num_threads` is the number of threads that compute; torch's, which sample, are
        set to it too, for the whole process.
    source
        The model's files, open; let go of when they are read.
    """

    def __init__(self, config: EngineConfig, source: WeightSource) -> None:
        self._config = config
        self._source: WeightSource | None = source
        self._precision = PRECISIONS[config.model.dtype]
        self._model: _Model | None = None
        self._state: _State | None = None

    def load(self, progress: Progress) -> None:
        """Read and pack the weights; see `Executor.load`. The kernels must be available.

        Raises
        ------
        ConfigError
            max_model_len exceeds the model's context length.
        """
        num_threads = self._config.executor.num_threads or num_usable_cores()
        # torch's threads spin while they wait for each other: for the small checks of packed
        # tensors that took a quarter of a start
        torch.set_num_threads(1 if self._precision.weights is None else num_threads)
        progress(_STAGE, 0.0)
        source, self._source = self._source, None
        if source is None:
            raise RuntimeError("bug: the executor is loaded twice")
        max_model_len = choose_max_model_len(self._config, source.spec)
        team = Team(num_threads)
        matrices = open_matrices(source, team, self._precision.weights)
        weights = load_decoder(matrices, max_model_len, lambda done: progress(_STAGE, done))
        decoder = Decoder(decoder_shape(source.spec), weights, team)
        torch.set_num_threads(num_threads)
        self._model = _Model(source.spec, max_model_len, team, decoder)

    def allocate_cache(self) -> ModelFacts:
        """Allocate the KV memory; see `Executor.allocate_cache`."""
        model = self._loaded()
        spec, dtype = model.spec, self._precision.cache
        block_size = self._config.cache.block_size
        num_blocks = count_blocks(
            self._config, spec, model.max_model_len, bytes_per_value=dtype.itemsize
        )
        layout = CacheLayout(spec.num_layers, spec.num_kv_heads, block_size, spec.head_dim)
        num_rows = self._config.scheduler.max_num_seqs
        self._state = _State(
            lazy_zeros(layout.shape(num_blocks + 1), dtype),
            Rows(num_rows=num_rows, max_model_len=model.max_model_len, block_size=block_size),
            Limits(num_rows, num_blocks + 1, spec.vocab_size, model.max_model_len),
        )
        return ModelFacts(
            max_model_len=model.max_model_len,
            vocab_size=spec.vocab_size,
            num_blocks=num_blocks,
            block_size=block_size,
            embedding_size=spec.hidden_size,
        )

    @torch.inference_mode()
    def run(self, batch: Batch) -> StepResult:
        """Compute one batch; see `Executor.run`."""
        state = self._allocated()
        state.limits.check(batch)
        state.rows.apply(batch)
        for source, destination in batch.copies:
            # in order: a copy may be the source of the next
            state.cache[destination] = state.cache[source]
        if not len(batch.chunks):
            return StepResult([])
        pooled = state.rows.pooled.find(batch.chunks)
        if pooled:
            return self._compute_pooled(state, batch.chunks, pooled)
        return self._compute(state, batch.chunks)

    def describe(self) -> str:
        """Name the kernels and their types."""
        weights = self._precision.weights
        return f"CPU, {'packed weights' if weights is None else _name_of(weights)}"

    def close(self) -> None:
        """End the threads and let go of weights and KV memory."""
        if self._model is not None:
            self._model.team.close()
        self._model = None
        self._state = None

    def _compute_pooled(self, state: _State, chunks: Chunks, pooled: list[int]) -> StepResult:
        """Compute all chunks, of which some want an embedding."""
        decoder, rows = self._loaded().decoder, state.rows

        def find_states(some: Chunks) -> torch.Tensor:
            states: torch.Tensor = decoder.hidden_states(_step_inputs(rows, some), state.cache)
            return states

        return rows.pooled.compute(
            chunks,
            pooled,
            compute_chunks=lambda some: self._compute(state, some),
            compute_states=find_states,
        )

    def _compute(self, state: _State, chunks: Chunks) -> StepResult:
        """Compute all chunks, and choose a token for each that samples."""
        decoder, rows = self._loaded().decoder, state.rows
        chosen = [index for index, samples in enumerate(chunks.samples) if samples]
        sampling = [chunks.rows[index] for index in chosen]
        positions = [chunks.starts[index] + chunks.num_tokens[index] for index in chosen]
        scored = rows.special.scored_chunks(chunks)
        if not scored and rows.need_no_logits(sampling):
            found = decoder.greedy_step(_step_inputs(rows, chunks), state.cache)
            tokens = found.clamp(min=0)
            if sampling:
                rows.append_tokens(sampling, positions, tokens)
            not_finite = tuple((found < 0).nonzero().flatten().tolist())
            return StepResult(tokens.tolist(), not_finite=not_finite)

        def compute(some: Chunks) -> torch.Tensor:
            logits: torch.Tensor = decoder.step(_step_inputs(rows, some), state.cache)
            return logits

        if scored:
            logits, scores = compute_scored(chunks, scored, rows.special, compute)
        else:
            logits, scores = compute(chunks), None
        if not sampling:
            return StepResult([], prompt_logprobs=scores)
        not_finite = find_not_finite(logits)
        picked = rows.choose(logits, sampling, positions)
        return StepResult(
            picked.token_ids,
            picked.logprobs,
            scores,
            not_finite=not_finite + picked.impossible,
        )

    def _loaded(self) -> _Model:
        if self._model is None:
            raise RuntimeError("bug: the executor is used before `load` or after `close`")
        return self._model

    def _allocated(self) -> _State:
        if self._state is None:
            raise RuntimeError("bug: the executor runs before `allocate_cache` or after `close`")
        return self._state


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _step_inputs(rows: Rows, chunks: Chunks) -> StepInputs:
    positions = token_positions(chunks.starts, chunks.num_tokens)
    return StepInputs(
        rows=torch.tensor(chunks.rows, dtype=torch.int32),
        starts=torch.tensor(chunks.starts, dtype=torch.int32),
        num_tokens=torch.tensor(chunks.num_tokens, dtype=torch.int32),
        samples=torch.tensor(chunks.samples, dtype=torch.bool),
        token_ids=rows.input_tokens(chunks.rows, chunks.num_tokens, positions).int(),
        block_tables=rows.block_tables,
    )
