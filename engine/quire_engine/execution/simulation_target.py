"""What a simulated engine stands for: a GPU and a shape of the catalogues, or a measured engine."""

from collections.abc import Callable
from dataclasses import dataclass

from quire_engine.config import EngineConfig
from quire_engine.errors import ConfigError
from quire_engine.profiles.capacity import count_kv_blocks
from quire_engine.profiles.engine_profile import EngineProfile
from quire_engine.profiles.files import is_profile_file, read_profile
from quire_engine.profiles.gpus import Gpu, find_gpu
from quire_engine.profiles.roofline import estimate_step_time
from quire_engine.profiles.shapes import SHAPES, ComputeType, ModelShape, find_shape
from quire_engine.profiles.shipped import find_shipped
from quire_engine.profiles.step_time import StepTimeModel, constant_step_time


@dataclass(frozen=True, slots=True)
class SimulationTarget:
    """Everything about an engine that a simulation needs."""

    device: str
    model: str
    vocab_size: int
    max_model_len: int
    step_time: StepTimeModel
    count_blocks: Callable[[], int]
    """KV blocks that requests can use, where no setting says how many."""


def find_target(config: EngineConfig) -> SimulationTarget:
    """What `executor.simulate` and `executor.model_shape` name.

    Raises
    ------
    ConfigError
        The GPU, shape or file is unknown, missing or damaged, or max_model_len exceeds the model's.
    """
    name, shape_name = config.executor.simulate, config.executor.model_shape
    if name is None:
        raise ConfigError("the simulated executor needs --simulate with the name of a GPU")
    if is_profile_file(name):
        target = _measured(config, read_profile(name))
    elif shape_name is None:
        raise ConfigError(f"--simulate {name} needs --model-shape: one of {', '.join(SHAPES)}")
    else:
        target = _catalogued(config, find_gpu(name), find_shape(shape_name))
    wanted = config.model.max_model_len
    if wanted is not None and wanted > target.max_model_len:
        raise ConfigError(
            f"max_model_len {wanted} exceeds the {target.max_model_len} tokens of {target.model}: "
            "lower it to that, or simulate another model"
        )
    return target


def _measured(config: EngineConfig, profile: EngineProfile) -> SimulationTarget:
    """An engine as it was; another block size changes how many blocks its memory is."""
    num_tokens = profile.num_blocks * profile.block_size
    return SimulationTarget(
        device=profile.device,
        model=profile.model,
        vocab_size=profile.vocab_size,
        max_model_len=profile.max_model_len,
        step_time=_constant(config) or profile.step_time,
        count_blocks=lambda: max(num_tokens // config.cache.block_size, 1),
    )


def _catalogued(config: EngineConfig, gpu: Gpu, shape: ModelShape) -> SimulationTarget:
    """A GPU with a model: as measured where a profile of both is shipped, else as estimated."""
    dtype = _compute_type(config)
    shipped = find_shipped(gpu.name, shape) if dtype == "bfloat16" else None
    measured = shipped.step_time if shipped else None
    return SimulationTarget(
        device=gpu.name,
        model=shape.name,
        vocab_size=shape.vocab_size,
        max_model_len=shape.max_model_len,
        step_time=_constant(config) or measured or estimate_step_time(gpu, shape, dtype=dtype),
        count_blocks=lambda: _count_blocks(config, gpu, shape),
    )


def _constant(config: EngineConfig) -> StepTimeModel | None:
    seconds = config.executor.simulated_step_seconds
    return None if seconds is None else constant_step_time(seconds)


def _count_blocks(config: EngineConfig, gpu: Gpu, shape: ModelShape) -> int:
    """All that fit but the null block."""
    fitting = count_kv_blocks(
        gpu,
        shape,
        block_size=config.cache.block_size,
        gpu_memory_utilization=config.cache.gpu_memory_utilization,
        max_num_batched_tokens=config.scheduler.max_num_batched_tokens,
        max_num_seqs=config.scheduler.max_num_seqs,
        dtype=_compute_type(config),
    )
    return fitting - 1


def _compute_type(config: EngineConfig) -> ComputeType:
    dtype = config.model.dtype
    return "bfloat16" if dtype == "auto" or dtype == "packed" else dtype
