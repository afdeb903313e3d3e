"""What the kernels support, and how many KV blocks fit beside weights and the worst step."""

from dataclasses import dataclass

import torch

from quire_engine.config import EngineConfig
from quire_engine.errors import CapacityError, ConfigError, ModelError
from quire_engine.execution.cuda.buckets import MAX_PROMPTS
from quire_engine.models.config import ModelSpec
from quire_kernels.ops.checks import BLOCK_SIZES, HEAD_DIMS

MAX_NUM_SEQS = 65_535 - MAX_PROMPTS
"""A grid of CUDA has no more programs along its second and third axis; a step's arrays have room
for some prompts besides."""
GRAPHS_BYTES = 512 << 20
"""Kept free for what is not profiled: the graphs' nodes, kernels, cuBLAS's workspaces."""


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes of one device, with the weights loaded and the worst step profiled."""

    total: int
    used: int
    """By all processes, nothing of a step among it."""
    step_peak: int
    """What the worst step without a graph takes on top."""
    graph_peak: int
    """What the widest decode step takes on top: graphs keep memory of their own."""

    def available(self, utilization: float) -> int:
        """Bytes that the KV cache may take."""
        rest = self.used + self.step_peak + self.graph_peak + GRAPHS_BYTES
        return max(int(self.total * utilization) - rest, 0)


def check_supported(config: EngineConfig, spec: ModelSpec, max_model_len: int) -> None:
    """Refuse what has no kernel.

    Raises
    ------
    ModelError
        The model's head size, or what sets its family apart.
    ConfigError
        The block size, or the sequences.
    """
    missing = missing_features(spec, max_model_len)
    if missing:
        raise ModelError(
            f"the GPU's executor does not compute {', '.join(missing)} of {spec.architecture} yet: "
            "use --device cpu, or a model of Llama, Mistral, Qwen3 or Phi-3"
        )
    if spec.head_dim not in HEAD_DIMS:
        raise ModelError(
            f"the model's head size {spec.head_dim} has no GPU kernel; supported are "
            f"{', '.join(map(str, HEAD_DIMS))}"
        )
    max_num_seqs = config.scheduler.max_num_seqs
    if max_num_seqs > MAX_NUM_SEQS:
        raise ConfigError(
            f"max_num_seqs {max_num_seqs} is more than the GPU's kernels take: "
            f"{MAX_NUM_SEQS} at most"
        )
    if config.cache.block_size not in BLOCK_SIZES:
        raise ConfigError(
            f"block_size {config.cache.block_size} has no GPU kernel; supported are "
            f"{', '.join(map(str, BLOCK_SIZES))}"
        )


def missing_features(spec: ModelSpec, max_model_len: int) -> list[str]:
    """Name what of a model the device's decoder would leave out."""
    has_window = bool(spec.windowed_layers) and spec.window < max_model_len
    lacks = {
        "the biases": spec.has_biases,
        f"the window of {spec.window} tokens (a --max-model-len up to it needs none)": has_window,
        "the norms behind attention and MLP": spec.has_post_norms,
        "the second rotary embedding": spec.windowed_rope is not None,
        "the gate's GELU": spec.activation != "silu",
        "the soft-caps": spec.attention_softcap > 0 or spec.logit_softcap > 0,
        "the embedding's scale": spec.embedding_scale != 1,
        "the attention's scale": spec.attention_scale is not None,
        "the norms' offset": spec.norm_offset != 0,
    }
    return [name for name, is_missing in lacks.items() if is_missing]


def count_blocks(
    config: EngineConfig,
    spec: ModelSpec,
    max_model_len: int,
    bytes_per_value: int,
    memory: DeviceMemory | None,
) -> int:
    """Return the KV blocks that requests can use; the null block comes on top.

    Parameters
    ----------
    memory
        None where nothing was measured: then `max_num_blocks` must be set.

    Raises
    ------
    CapacityError
        Not even one request of `max_model_len` fits, or `max_num_blocks` does not.
    """
    cache = config.cache
    block_bytes = cache.block_size * spec.kv_bytes_per_token(bytes_per_value)
    needed = -(-max_model_len // cache.block_size)
    fitting = None
    if memory is not None:
        fitting = max(memory.available(cache.gpu_memory_utilization) // block_bytes - 1, 0)
    wanted = cache.max_num_blocks if cache.max_num_blocks is not None else fitting
    if wanted is None:
        raise ConfigError("max_num_blocks must be set where memory is not measured")
    if fitting is not None and wanted > fitting:
        raise CapacityError(
            f"{wanted} KV blocks of {block_bytes} bytes do not fit: {_describe(memory)}, so "
            f"{fitting} fit; lower max_num_blocks to that or raise gpu_memory_utilization"
        )
    if wanted < needed:
        shorter = f"lower max_model_len to {wanted * cache.block_size}, or " if wanted else ""
        raise CapacityError(
            f"one request of max_model_len {max_model_len} tokens needs {needed} KV blocks of "
            f"{block_bytes} bytes, and there are {wanted} ({_describe(memory)}): {shorter}free "
            f"{(needed - wanted) * block_bytes} bytes"
        )
    return wanted


def _describe(memory: DeviceMemory | None) -> str:
    if memory is None:
        return "max_num_blocks"
    gib = 1 << 30
    return (
        f"of {memory.total / gib:.1f} GiB, {memory.used / gib:.1f} are in use with the weights, "
        f"and steps take {(memory.step_peak + memory.graph_peak + GRAPHS_BYTES) / gib:.1f}"
    )


class PeakMeter:
    """Measures what pieces of work allocate at their peak, on a CUDA device."""

    def __init__(self) -> None:
        self._before = 0

    def measure(self) -> int:
        """Return the bytes allocated at the peak since `reset`, beyond those at its time."""
        torch.cuda.synchronize()
        return int(torch.cuda.max_memory_reserved()) - self._before

    def reset(self) -> None:
        """Give cached memory back, and begin to measure."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        self._before = int(torch.cuda.memory_reserved())

    def used_and_total(self) -> tuple[int, int]:
        """Return (bytes in use by all processes, bytes of the device)."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        return total - free, total
