"""All buffers of a running executor, and the profile that sizes the KV cache among them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from quire_engine.config import EngineConfig
from quire_engine.execution.cuda.buckets import MAX_PROMPTS, PromptShape, PromptShapes
from quire_engine.execution.cuda.capacity import DeviceMemory, PeakMeter, count_blocks
from quire_engine.execution.cuda.chunk_inputs import NOBODY, ChunkArrays, place_chunks
from quire_engine.execution.cuda.graphs import DecodeGraphs
from quire_engine.execution.cuda.inputs import (
    MAX_IN_FLIGHT,
    NUM_DECODE_ARRAYS,
    InputBuffers,
    StepTensors,
)
from quire_engine.execution.cuda.kernels import WORDS_PER_ROW
from quire_engine.execution.cuda.model import CudaDecoder
from quire_engine.execution.cuda.platform import Event, Platform
from quire_engine.execution.cuda.prompt_graphs import PromptGraphs
from quire_engine.execution.cuda.row_memory import RowMemory
from quire_engine.execution.cuda.step import StepProgram

MAX_CHANGES = 1 << 17
"""Most changes of the rows' memory that travel with a step; more are copied apart."""


class StepOutput:
    """Where a step's tokens come to on the host, and when.

    Parameters
    ----------
    size
        Most tokens of a step.
    """

    def __init__(self, platform: Platform, size: int) -> None:
        self.tokens = platform.host_ints(size)
        """[size] int32, host."""
        self.begun = Event(platform, has_time=True)
        """The device had the step, and had ended the one before."""
        self.filled = Event(platform, has_time=True)


@dataclass(frozen=True, slots=True)
class EngineState:
    """What exists once the KV memory is allocated."""

    cache: torch.Tensor
    """[num_blocks + 1, num_layers, 2, num_kv_heads, block_size, head_dim], device."""
    rows: RowMemory
    inputs: InputBuffers
    program: StepProgram
    graphs: DecodeGraphs
    prompt_graphs: PromptGraphs
    outputs: list[StepOutput]
    """For each step in flight."""


def create_state(config: EngineConfig, platform: Platform, decoder: CudaDecoder) -> EngineState:
    """Allocate everything; the KV cache takes what the profile leaves.

    Raises
    ------
    CapacityError
        Not even one request of the model's length fits.
    """
    max_num_seqs = config.scheduler.max_num_seqs
    rows = RowMemory(
        platform,
        num_rows=max_num_seqs,
        max_model_len=decoder.num_positions,
        block_size=config.cache.block_size,
    )
    shapes = PromptShapes(
        decoder.spec,
        max_num_seqs=max_num_seqs,
        max_num_tokens=config.scheduler.max_num_batched_tokens,
        has_graphs=config.executor.prompt_graphs,
    )
    capacity = _capacity(config, rows, shapes)
    inputs = InputBuffers(platform, max_width=max_num_seqs, capacity=capacity)
    program = StepProgram(platform, decoder, rows, max_num_seqs=max_num_seqs)
    graphs = _graphs(platform, program, inputs, rows, max_num_seqs)

    def pad(shape: PromptShape, truncates: bool) -> Callable[[], None]:
        step = pad_step(inputs, rows, shape, truncates=truncates)
        return lambda: program.compute(step)

    prompt_graphs = PromptGraphs(platform, pad, shapes, graphs.pool)
    memory = None
    if platform.is_cuda:
        widest = shapes.widest
        memory = _profile(config, platform, decoder, rows, inputs, program, widest)
    num_blocks = count_blocks(
        config, decoder.spec, decoder.num_positions, platform.dtype.itemsize, memory
    )
    cache = torch.zeros(
        cache_shape(config, decoder, num_blocks + 1), dtype=platform.dtype, device=platform.device
    )
    decoder.attach(cache)
    outputs = [StepOutput(platform, max_num_seqs) for _ in range(MAX_IN_FLIGHT)]
    return EngineState(cache, rows, inputs, program, graphs, prompt_graphs, outputs)


def cache_shape(config: EngineConfig, decoder: CudaDecoder, num_blocks: int) -> tuple[int, ...]:
    """Return the block-major shape of so many blocks, the null block among them."""
    spec = decoder.spec
    block_size = config.cache.block_size
    return (num_blocks, spec.num_layers, 2, spec.num_kv_heads, block_size, spec.head_dim)


def _capacity(config: EngineConfig, rows: RowMemory, shapes: PromptShapes) -> int:
    """Words that the largest step's arrays and its changes take."""
    scheduler = config.scheduler
    changes = min(scheduler.max_num_seqs * (rows.max_blocks + WORDS_PER_ROW), MAX_CHANGES)
    num_tokens = max(scheduler.max_num_batched_tokens, *shapes.tokens, 0)
    arrays = 3 * num_tokens + 8 * (scheduler.max_num_seqs + MAX_PROMPTS)
    decodes = NUM_DECODE_ARRAYS * (scheduler.max_num_seqs + 4)
    return max(arrays, decodes) + 2 * changes + 256


def _graphs(
    platform: Platform,
    program: StepProgram,
    inputs: InputBuffers,
    rows: RowMemory,
    max_num_seqs: int,
) -> DecodeGraphs:
    nobody = np.empty(0, np.int32)

    def compute(width: int, truncates: bool) -> None:
        program.compute(inputs.decode_tensors(width, truncates=truncates))

    def fill_padding() -> None:
        inputs.begin()
        inputs.place_decodes(
            nobody, nobody, nobody, width=inputs.max_width, padding_row=rows.padding_row
        )
        inputs.send()

    return DecodeGraphs(platform, compute, fill_padding, max_num_seqs=max_num_seqs)


def _profile(
    config: EngineConfig,
    platform: Platform,
    decoder: CudaDecoder,
    rows: RowMemory,
    inputs: InputBuffers,
    program: StepProgram,
    widest: PromptShape | None,
) -> DeviceMemory:
    """Run the worst steps on padding rows, with a cache of the null block alone."""
    null_cache = torch.zeros(
        cache_shape(config, decoder, 1), dtype=platform.dtype, device=platform.device
    )
    decoder.attach(null_cache)
    meter = PeakMeter()
    step = worst_step(config, rows, inputs)
    program.compute(step)  # compiles kernels, and lets libraries allocate what they keep
    meter.reset()
    program.compute(step)
    step_peak = meter.measure()
    inputs.begin()
    nobody = np.empty(0, np.int32)
    inputs.place_decodes(
        nobody, nobody, nobody, width=inputs.max_width, padding_row=rows.padding_row
    )
    inputs.send()
    meter.reset()
    program.compute(inputs.decode_tensors(config.scheduler.max_num_seqs, truncates=True))
    graph_peak = meter.measure()
    if widest is not None:
        step = pad_step(inputs, rows, widest, truncates=True)
        meter.reset()
        program.compute(step)
        graph_peak = max(graph_peak, meter.measure())
    used, total = meter.used_and_total()
    return DeviceMemory(total=total, used=used, step_peak=step_peak, graph_peak=graph_peak)


def worst_step(config: EngineConfig, rows: RowMemory, inputs: InputBuffers) -> StepTensors:
    """As many tokens as can be, of as many sequences, that all sample; on its way to the device."""
    count = config.scheduler.max_num_seqs
    budget = config.scheduler.max_num_batched_tokens
    counts = np.full(count, budget // count, np.int32)
    counts[: budget % count] += 1
    counts = np.minimum(counts, rows.max_model_len)
    inputs.begin()
    step = place_chunks(
        inputs,
        rows.tokens,
        rows.num_given,
        ChunkArrays(
            np.full(count, rows.padding_row, np.int32),
            np.zeros(count, np.int32),
            counts,
            np.ones(count, np.bool_),
            num_decodes=0,
        ),
        truncates=True,
    )
    inputs.send()
    return step


def pad_step(
    inputs: InputBuffers, rows: RowMemory, shape: PromptShape, *, truncates: bool
) -> StepTensors:
    """A step of padding alone, on its way to the device."""
    inputs.begin()
    step = place_chunks(
        inputs,
        rows.tokens,
        rows.num_given,
        NOBODY,
        truncates=truncates,
        shape=shape,
        padding_row=rows.padding_row,
    )
    inputs.send()
    return step
