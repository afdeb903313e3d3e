"""Whether a model fits an accelerator, before anything is deployed.

    weights + one request of maxModelLen + working memory  <=  memory x utilization

Only for models and GPUs whose sizes quire knows; for others the engine says it when it starts.
"""

import contextlib
from dataclasses import dataclass

from quire_engine.errors import CapacityError, ConfigError
from quire_engine.profiles.capacity import count_kv_blocks, working_bytes
from quire_engine.profiles.gpus import GIB, Gpu, find_gpu
from quire_engine.profiles.shapes import SHAPES, ModelShape, find_shape
from quire_operator.resource.accelerator import Accelerator
from quire_operator.resource.reading import InferenceService

UTILIZATION = 0.9
"""The engine's own default."""


@dataclass(frozen=True, kw_only=True)
class Misfit:
    """Why a model does not fit."""

    accelerator: str
    reason: str = "ModelDoesNotFit"
    message: str
    """With the numbers, and what to do."""


MISFIT_REASONS = ("ModelDoesNotFit", "UnknownSimulation")


def find_misfits(service: InferenceService) -> list[Misfit]:
    """Accelerators that the model does not fit, as far as it is known."""
    found = (_misfit(service, one) for one in service.spec.accelerators)
    return [one for one in found if one is not None]


def _misfit(service: InferenceService, accelerator: Accelerator) -> Misfit | None:
    try:
        shape, gpu = _shape_of(service, accelerator), _gpu_of(accelerator)
    except ConfigError as error:  # a simulation of what there is not
        return Misfit(
            accelerator=accelerator.name, reason="UnknownSimulation", message=f"simulate: {error}"
        )
    if shape is None or gpu is None or accelerator.count > 1:
        return None
    engine, quantization = service.spec.engine, service.spec.model.quantization
    max_model_len = service.spec.model.max_model_len or shape.max_model_len
    kv_bytes = 4 if engine.kv_cache_dtype == "float32" else 2
    utilization = _utilization(service)
    try:
        num_blocks = count_kv_blocks(
            gpu,
            shape,
            block_size=engine.block_size,
            gpu_memory_utilization=utilization,
            quantization=quantization,
            kv_bytes_per_element=kv_bytes,
            max_num_batched_tokens=engine.max_num_batched_tokens,
            max_num_seqs=engine.max_num_seqs,
        )
    except (CapacityError, ConfigError) as error:
        return Misfit(accelerator=accelerator.name, message=str(error))
    most = (num_blocks - 1) * engine.block_size
    if most >= max_model_len:
        return None
    weights = _gib(shape.weight_bytes(quantization=quantization))
    working = _gib(
        working_bytes(
            shape,
            max_num_batched_tokens=engine.max_num_batched_tokens,
            max_num_seqs=engine.max_num_seqs,
        )
    )
    kv = _gib(max_model_len * shape.kv_bytes_per_token(kv_bytes))
    usable = _gib(int(gpu.memory_bytes * utilization))
    return Misfit(
        accelerator=accelerator.name,
        message=f"a request of maxModelLen {max_model_len} tokens does not fit {gpu.name} beside"
        f" {shape.name}: it takes {kv}, weights {weights} and working memory {working}, of {usable}"
        f" usable; at most {most} tokens fit: set model.maxModelLen to {most} or less, quantize the"
        " model, or take a larger GPU",
    )


def _utilization(service: InferenceService) -> float:
    """The part of a GPU's memory that an engine uses; the engine refuses what is no number."""
    for argument in reversed(service.spec.engine.extra_args):
        name, _, value = argument.partition("=")
        if name == "--gpu-memory-utilization":
            with contextlib.suppress(ValueError):
                return float(value)
    return UTILIZATION


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.1f} GiB"


def _gpu_of(accelerator: Accelerator) -> Gpu | None:
    """The smallest GPU that the accelerator may be; None if one of them is not known."""
    if accelerator.simulate:
        return find_gpu(accelerator.simulate.gpu)
    try:
        gpus = [find_gpu(product) for product in accelerator.products]
    except ConfigError:
        return None
    return min(gpus, key=lambda gpu: gpu.memory_bytes, default=None)


def _shape_of(service: InferenceService, accelerator: Accelerator) -> ModelShape | None:
    if accelerator.simulate:
        return find_shape(accelerator.simulate.model_shape)
    return shape_of_source(service.spec.model.source)


def shape_of_source(source: str) -> ModelShape | None:
    """The model's sizes, by the last part of its repository's name; None if they are not known."""
    if not source.startswith("hf://"):
        return None
    repository = source.removeprefix("hf://").split("@")[0]
    name = repository.rsplit("/", 1)[-1].lower()
    simple = name.removeprefix("meta-").replace("llama-3", "llama3").removesuffix("-instruct")
    return SHAPES.get(name) or SHAPES.get(simple)
