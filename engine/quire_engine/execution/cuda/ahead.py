"""Compiles every kernel that an engine of some model may launch, without a device.

It runs the executor's own steps on tensors without memory: what is compiled is what those steps
look for in Triton's cache. Widths and shapes beyond a handful compile nothing new, but which ones
those are is nobody's to know here.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch

from quire_engine.config import EngineConfig
from quire_engine.execution.cuda.capacity import check_supported
from quire_engine.execution.cuda.engine_state import EngineState, create_state, pad_step, worst_step
from quire_engine.execution.cuda.inputs import StepTensors
from quire_engine.execution.cuda.model import CudaDecoder
from quire_engine.execution.cuda.platform import Platform, dtype_of
from quire_engine.execution.cuda.weights import RandomWeights
from quire_engine.execution.torch_cpu.capacity import choose_max_model_len
from quire_engine.models.config import ModelSpec, RopeSpec
from quire_engine.profiles.shapes import ModelShape
from quire_kernels.compiled.absent import compiling_for, devices_of
from quire_kernels.ops.blocks import copy_blocks


def spec_of(shape: ModelShape) -> ModelSpec:
    """The facts of a model of these sizes, of which kernels need no more."""
    return ModelSpec(
        architecture=shape.name,
        vocab_size=shape.vocab_size,
        context_length=shape.max_model_len,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.ffn_size,
        num_layers=shape.num_layers,
        num_heads=shape.num_q_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        norm_epsilon=1e-5,
        rope=RopeSpec(theta=500000.0),
        ties_embeddings=shape.has_tied_embedding,
        eos_token_ids=(),
    )


def compile_model(
    config: EngineConfig, spec: ModelSpec, arch: str, *, has_head_norms: bool
) -> None:
    """Compile for all devices of an architecture, into the cache that Triton uses.

    Parameters
    ----------
    config
        As the engine's: most sequences, tokens, lengths, block size and type matter.
    has_head_norms
        Whether queries and keys are normalised per head, as in Qwen3.

    Raises
    ------
    ConfigError, ModelError
        The engine would refuse this model or configuration.
    UnsupportedError
        There are no tiles for the architecture.
    """
    devices = devices_of(arch)
    platform = Platform(torch.device("meta"), dtype_of(config))
    max_model_len = choose_max_model_len(config, spec)
    check_supported(config, spec, max_model_len)
    weights = RandomWeights(spec, has_head_norms=has_head_norms).load(platform, lambda _done: None)
    decoder = CudaDecoder(
        spec, weights, max_model_len, platform, is_fixed=config.executor.batch_invariant
    )
    num_blocks = -(-max_model_len // config.cache.block_size)
    config = replace(config, cache=replace(config.cache, max_num_blocks=num_blocks))
    for device in devices:
        with compiling_for(device), torch.inference_mode():
            state = create_state(config, platform, decoder)
            for step in _steps(config, state):
                state.program.compute(step)
            one = torch.zeros(1, dtype=torch.int32, device=platform.device)
            state.rows.write(one, one)
            copy_blocks(state.cache, one.expand(1, 2).contiguous())


def _steps(config: EngineConfig, state: EngineState) -> Iterator[StepTensors]:
    yield worst_step(config, state.rows, state.inputs)
    for truncates in (False, True):
        for width in state.graphs.widths:
            yield state.inputs.decode_tensors(width, truncates=truncates)
        for shape in state.prompt_graphs.shapes.all():
            yield pad_step(state.inputs, state.rows, shape, truncates=truncates)
