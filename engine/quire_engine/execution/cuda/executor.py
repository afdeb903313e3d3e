"""The executor of a CUDA device.

    submit   changes of rows and the step's arrays in one copy -> graph or kernels -> ids' copy;
             a missing graph is captured while the device computes
    collect  wait for the oldest step's ids
    run      submit and collect

Up to two steps may be in flight: a decode reads its row's newest token on the device, so step
k + 1 can be submitted before step k's tokens are known to the host.
"""

from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from quire_engine.config import EngineConfig
from quire_engine.execution.base import AheadExecutor, Batch, Chunks, Progress, StepResult
from quire_engine.execution.cuda.buckets import PromptShape
from quire_engine.execution.cuda.capacity import check_supported
from quire_engine.execution.cuda.chunk_inputs import ChunkArrays, place_chunks
from quire_engine.execution.cuda.engine_state import EngineState, create_state
from quire_engine.execution.cuda.inputs import MAX_IN_FLIGHT, StepTensors
from quire_engine.execution.cuda.kernel_cache import prepare_kernels
from quire_engine.execution.cuda.model import CudaDecoder
from quire_engine.execution.cuda.platform import Platform, cuda_platform
from quire_engine.execution.cuda.preparing import refusals, tune_unknown_device
from quire_engine.execution.cuda.special_step import Scores, compute_special, is_special
from quire_engine.execution.cuda.weights import FileWeights, Weights
from quire_engine.execution.torch_cpu.capacity import choose_max_model_len
from quire_engine.protocol.messages import ModelFacts
from quire_kernels.ops.blocks import copy_blocks
from quire_kernels.ops.device import cuda_device

_STAGE = "reading weights"
Ints = NDArray[np.int32]
Order = NDArray[np.intp]
AS_GIVEN: Order = np.empty(0, np.intp)
"""The order of decodes that are computed as they come."""


@dataclass(frozen=True, slots=True)
class _InFlight:
    """A submitted step."""

    slot: int
    """Which host buffer its tokens go to."""
    rows: Ints
    """[num_samples]: whose tokens they are."""
    positions: Ints
    """[num_samples]: where in their rows."""
    scores: Scores
    order: Order
    """[num_decodes]: which of the batch's decodes each of the first samples is; [0]: as given."""


class CudaExecutor(AheadExecutor):
    """Computes on one CUDA device, in bfloat16 or float16.

    Parameters
    ----------
    config
        `cache` and `scheduler` size the buffers.
    weights
        Where the model comes from; a path is a GGUF file or a Hugging Face folder.
    platform
        Where to compute; the first CUDA device when absent.
    """

    def __init__(
        self, config: EngineConfig, weights: Path | Weights, *, platform: Platform | None = None
    ) -> None:
        self._config = config
        self._weights = FileWeights(weights) if isinstance(weights, Path) else weights
        self._platform = platform or cuda_platform(config)
        self._decoder: CudaDecoder | None = None
        self._state: EngineState | None = None
        self._in_flight: deque[_InFlight] = deque()
        self._turn = 0

    def load(self, progress: Progress) -> None:
        """Bring the weights onto the device; see `Executor.load`.

        Raises
        ------
        ConfigError
            max_model_len exceeds the model's context length, or block_size has no kernel.
        """
        progress(_STAGE, 0.0)
        spec = self._weights.open()
        max_model_len = choose_max_model_len(self._config, spec)
        check_supported(self._config, spec, max_model_len)
        if self._platform.is_cuda:
            prepare_kernels(cuda_device(self._platform.device.index).arch)
        with self._platform.on_stream():
            weights = self._weights.load(self._platform, lambda done: progress(_STAGE, done))
            self._decoder = CudaDecoder(
                spec,
                weights,
                max_model_len,
                self._platform,
                is_fixed=self._config.executor.batch_invariant,
            )

    def allocate_cache(self) -> ModelFacts:
        """Profile the worst step, allocate the KV memory, capture the first graphs."""
        if self._decoder is None:
            raise RuntimeError("bug: the executor is used before `load` or after `close`")
        with self._platform.on_stream():
            with refusals("kernels were compiled and steps were profiled"):
                block_size = self._config.cache.block_size
                tune_unknown_device(self._platform, self._decoder, block_size)
                self._state = create_state(self._config, self._platform, self._decoder)
            with refusals("the first CUDA graphs were captured"):
                self._state.prompt_graphs.capture_first()
                self._state.graphs.capture_first()
        if self._platform.is_cuda:
            self.padded_tokens = self._state.prompt_graphs.shapes.padded_tokens
        return ModelFacts(
            max_model_len=self._decoder.num_positions,
            vocab_size=self._decoder.spec.vocab_size,
            num_blocks=len(self._state.cache) - 1,
            block_size=self._config.cache.block_size,
            embedding_size=self._decoder.spec.hidden_size,
        )

    def submit(self, batch: Batch) -> None:
        """Give a step to the device and return; at most two may be in flight."""
        state = self._allocated()
        if len(self._in_flight) == MAX_IN_FLIGHT:
            raise RuntimeError(f"bug: {MAX_IN_FLIGHT} steps are in flight already")
        turn = (self._turn + 1) % MAX_IN_FLIGHT
        output = state.outputs[turn]
        with self._platform.on_stream(), torch.inference_mode():
            output.begun.record()
            state.rows.apply(batch)
            state.inputs.begin()
            scores, order = Scores(), AS_GIVEN
            if is_special(state.rows, batch.chunks):
                sampled, scores = self._submit_special(state, batch)
            else:
                order = longest_first(batch.chunks)
                only_decodes = batch.chunks.num_decodes == len(batch.chunks) > 0
                submit = self._submit_decodes if only_decodes else self._submit_chunks
                sampled = submit(state, batch, order)
            count = len(sampled[0])
            if count:
                output.tokens[:count].copy_(state.program.sampled[:count], non_blocking=True)
            output.filled.record()
        self._turn = turn
        self._in_flight.append(_InFlight(turn, *sampled, scores, order))
        if not state.graphs.capture_next():
            state.prompt_graphs.capture_next()

    def collect(self) -> StepResult:
        """Wait for the oldest submitted step and return its tokens."""
        state = self._allocated()
        step = self._in_flight.popleft()
        output = state.outputs[step.slot]
        output.filled.wait()
        computed = output.tokens.numpy()[: len(step.rows)]
        state.rows.remember(step.rows, step.positions, np.maximum(computed, 0))
        sampled = computed.copy()
        sampled[step.order] = computed[: len(step.order)]
        scores = step.scores
        return StepResult(
            np.maximum(sampled, 0).tolist(),
            scores.logprobs,
            scores.prompt_logprobs,
            not_finite=tuple(np.flatnonzero(sampled < 0).tolist()) + scores.impossible,
            pooled=scores.pooled,
            seconds=output.filled.seconds_since(output.begun),
        )

    def probe(self) -> None:
        """Ask the device: errors such as an illegal address stay with a process until its end."""
        if self._platform.is_cuda:
            torch.cuda.synchronize()

    def describe(self) -> str:
        """Name the device and the type computed in."""
        platform = self._platform
        name = torch.cuda.get_device_name(platform.device) if platform.is_cuda else "CPU"
        return f"{name}, {str(platform.dtype).removeprefix('torch.')}"

    def count_graphs(self) -> tuple[int, int]:
        """How many decode steps ran as a graph, and how many kernel by kernel."""
        graphs = self._allocated().graphs
        return graphs.num_hits, graphs.num_misses

    def close(self) -> None:
        """Let go of weights, graphs and KV memory."""
        self._in_flight.clear()
        self._state = None
        self._decoder = None
        if self._platform.is_cuda:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()

    def capture_rest(self) -> None:
        """Capture every graph now rather than when it is first missed."""
        self._allocated().graphs.capture_rest()
        self._allocated().prompt_graphs.capture_rest()

    def _submit_decodes(self, state: EngineState, batch: Batch, order: Order) -> tuple[Ints, Ints]:
        """One token of each row, from a graph if there is one; returns rows and positions."""
        rows_ids = np.array(batch.chunks.rows, np.int32)[order]
        positions = np.array(batch.chunks.starts, np.int32)[order]
        rows = state.rows
        given = np.full(len(rows_ids), -1, np.int32)
        known = positions < rows.num_given[rows_ids]
        if known.any():
            given[known] = rows.tokens[rows_ids[known], positions[known]]
        truncates = bool(rows.truncates[rows_ids].any())
        width = state.graphs.width_of(len(rows_ids), truncates=truncates)
        state.inputs.place_decodes(
            rows_ids, positions, given, width=width, padding_row=rows.padding_row
        )
        self._send(state, batch)
        state.graphs.run(width, truncates=truncates)
        return rows_ids, positions + 1

    def _submit_chunks(self, state: EngineState, batch: Batch, order: Order) -> tuple[Ints, Ints]:
        """A step with prompts in it, or with changes alone; returns rows and positions."""
        if not len(batch.chunks):
            self._send(state, batch)
            nothing: Ints = np.empty(0, np.int32)
            return nothing, nothing
        chunks = chunk_arrays(batch.chunks, order)
        truncates = bool(state.rows.truncates[chunks.rows[chunks.samples]].any())
        shape = None
        if chunks.samples.any():  # without a sample, the last layer's products are left out
            shape = state.prompt_graphs.find(
                batch.total_tokens,
                chunks.num_decodes,
                len(chunks.rows) - chunks.num_decodes,
                truncates=truncates,
            )
        step, sampled = self._place(state, batch, chunks, truncates=truncates, shape=shape)
        if shape is None:
            state.program.compute(step)
        else:
            state.prompt_graphs.run(shape, step)
        return sampled

    def _submit_special(self, state: EngineState, batch: Batch) -> tuple[tuple[Ints, Ints], Scores]:
        """A step with rows that ask for more; returns rows, positions and scores."""
        chunks = chunk_arrays(batch.chunks, AS_GIVEN)
        truncates = bool(state.rows.truncates[chunks.rows[chunks.samples]].any())
        step, sampled = self._place(state, batch, chunks, truncates=truncates)
        scores = compute_special(state.program, state.rows, step, batch.chunks)
        return sampled, scores

    def _place(
        self,
        state: EngineState,
        batch: Batch,
        chunks: ChunkArrays,
        *,
        truncates: bool,
        shape: PromptShape | None = None,
    ) -> tuple[StepTensors, tuple[Ints, Ints]]:
        """Send a step's chunks to the device; returns it, and rows and positions that sample."""
        rows = state.rows
        step = place_chunks(
            state.inputs,
            rows.tokens,
            rows.num_given,
            chunks,
            truncates=truncates,
            shape=shape,
            padding_row=rows.padding_row,
        )
        self._send(state, batch)
        ends = chunks.starts + chunks.counts
        return step, (chunks.rows[chunks.samples], ends[chunks.samples])

    def _send(self, state: EngineState, batch: Batch) -> None:
        """Copy all inputs to the device, then apply there what changed."""
        indices, values = state.rows.changes()
        fits = 2 * len(indices) + 2 * len(batch.copies) + 16 <= state.inputs.room()
        if fits:
            placed = [state.inputs.place(indices), state.inputs.place(values)]
            rounds = [
                state.inputs.place(np.array(pairs, np.int32)).view(-1, 2)
                for pairs in copy_rounds(batch.copies)
            ]
        state.inputs.send()
        if not fits:  # rare: hundreds of long prompts begin at once
            device = self._platform.device
            placed = [torch.from_numpy(array).to(device) for array in (indices, values)]
            rounds = [
                torch.tensor(pairs, dtype=torch.int32, device=device)
                for pairs in copy_rounds(batch.copies)
            ]
        if len(indices):
            state.rows.write(*placed)
        state.rows.forget_changes()
        for pairs in rounds:
            copy_blocks(state.cache, pairs)

    def _allocated(self) -> EngineState:
        if self._state is None:
            raise RuntimeError("bug: the executor runs before `allocate_cache` or after `close`")
        return self._state


def longest_first(chunks: Chunks) -> Order:
    """[num_decodes]: an order of the decodes in which the device is busy to the end.

    Programs begin in this order as others end: one with a long context that began last would be
    alone at the end.
    """
    starts = np.array(chunks.starts[: chunks.num_decodes], np.int32)
    return np.argsort(-starts, kind="stable")


def chunk_arrays(chunks: Chunks, order: Order) -> ChunkArrays:
    """Return a batch's chunks as arrays, the first of them in another order."""
    rows, starts = np.array(chunks.rows, np.int32), np.array(chunks.starts, np.int32)
    for values in (rows, starts):  # decodes differ in nothing else
        values[: len(order)] = values[order]
    return ChunkArrays(
        rows,
        starts,
        np.array(chunks.num_tokens, np.int32),
        np.array(chunks.samples, np.bool_),
        chunks.num_decodes,
    )


def copy_rounds(copies: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Cut block copies into rounds whose copies can run at the same time, order kept.

    Within a round no block is written that another copy of it reads or writes.
    """
    rounds: list[list[tuple[int, int]]] = []
    read: set[int] = set()
    written: set[int] = set()
    for source, target in copies:
        if not rounds or source in written or target in written or target in read:
            rounds.append([])
            read, written = set(), set()
        rounds[-1].append((source, target))
        read.add(source)
        written.add(target)
    return rounds
