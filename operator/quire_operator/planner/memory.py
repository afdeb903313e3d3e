"""Whether a model fits an accelerator, before anything is deployed.

    weights + one request of maxModelLen + working memory  <=  memory x utilization

Only for models and GPUs whose sizes quire knows; for others the engine says it when it starts.
"""

from dataclasses import dataclass

from quire_engine.errors import CapacityError, ConfigError
from quire_engine.profiles.capacity import count_kv_blocks
from quire_engine.profiles.gpus import GIB, Gpu, find_gpu
from quire_engine.profiles.shapes import SHAPES, ModelShape, find_shape
from quire_operator.resource.accelerator import Accelerator
from quire_operator.resource.reading import InferenceService


@dataclass(frozen=True, kw_only=True)
class Misfit:
    """Why a model does not fit."""

    accelerator: str
    message: str
    """With the numbers, and what to do."""


def find_misfits(service: InferenceService) -> list[Misfit]:
    """Accelerators that the model does not fit, as far as it is known."""
    found = (_misfit(service, one) for one in service.spec.accelerators)
    return [one for one in found if one is not None]


def _misfit(service: InferenceService, accelerator: Accelerator) -> Misfit | None:
    try:
        shape, gpu = _shape_of(service, accelerator), _gpu_of(accelerator)
    except ConfigError as error:  # a simulation of what there is not
        return Misfit(accelerator=accelerator.name, message=str(error))
    if shape is None or gpu is None or accelerator.count > 1:
        return None
    engine = service.spec.engine
    max_model_len = service.spec.model.max_model_len or shape.max_model_len
    try:
        num_blocks = count_kv_blocks(
            gpu,
            shape,
            block_size=engine.block_size,
            max_num_batched_tokens=engine.max_num_batched_tokens,
            max_num_seqs=engine.max_num_seqs,
            quantization=service.spec.model.quantization,
        )
    except CapacityError as error:
        return Misfit(accelerator=accelerator.name, message=str(error))
    most = (num_blocks - 1) * engine.block_size
    if most >= max_model_len:
        return None
    memory = f"{gpu.memory_bytes / GIB:.0f} GiB"
    return Misfit(
        accelerator=accelerator.name,
        message=f"a request of maxModelLen {max_model_len} tokens does not fit {gpu.name} with"
        f" {memory} beside the weights of {shape.name}: at most {most} tokens do; set"
        f" model.maxModelLen to {most} or less, quantize the model, or take a larger GPU",
    )


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
    """The model's sizes, by the last part of its repository's name."""
    if accelerator.simulate:
        return find_shape(accelerator.simulate.model_shape)
    repository = service.spec.model.source.removeprefix("hf://").split("@")[0]
    name = repository.rsplit("/", 1)[-1].lower()
    if not service.spec.model.source.startswith("hf://"):
        return None
    simple = name.removeprefix("meta-").replace("llama-3", "llama3").removesuffix("-instruct")
    return SHAPES.get(name) or SHAPES.get(simple)
