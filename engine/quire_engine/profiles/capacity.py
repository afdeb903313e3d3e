"""How many KV blocks of a model fit a GPU.

    memory x utilization = weights + working memory + KV blocks

Working memory is the CUDA context, the activations of the largest step and the sampler's logits.
"""

from quire_engine.errors import CapacityError, ConfigError
from quire_engine.profiles.gpus import GIB, MIB, Gpu
from quire_engine.profiles.shapes import ComputeType, ModelShape, Quantization

CONTEXT_BYTES = 768 * MIB
"""The CUDA context, library workspaces and captured graphs."""
LOGITS_COPIES = 2
"""The sampler holds float32 logits and their probabilities."""


def working_bytes(shape: ModelShape, *, max_num_batched_tokens: int, max_num_seqs: int) -> int:
    """Bytes that the largest step needs besides weights and KV."""
    qkv_size = shape.head_dim * (shape.num_q_heads + 2 * shape.num_kv_heads)
    # the widest layer at its peak: residual, normed input, and either QKV or gate and up
    per_token = 2 * (2 * shape.hidden_size + max(qkv_size, 2 * shape.ffn_size))
    logits = LOGITS_COPIES * 4 * shape.vocab_size * max_num_seqs
    return CONTEXT_BYTES + per_token * max_num_batched_tokens + logits


def count_kv_blocks(
    gpu: Gpu,
    shape: ModelShape,
    *,
    block_size: int = 16,
    gpu_memory_utilization: float = 0.9,
    max_num_batched_tokens: int = 2048,
    max_num_seqs: int = 256,
    dtype: ComputeType = "bfloat16",
    quantization: Quantization = "none",
    kv_bytes_per_element: int = 2,
) -> int:
    """KV blocks of `block_size` tokens that fit, the null block included; at least 1.

    Raises
    ------
    ConfigError
        `gpu_memory_utilization` is outside (0, 1].
    CapacityError
        Not one block fits beside the weights; the message says what is short.
    """
    if not 0 < gpu_memory_utilization <= 1:
        raise ConfigError(
            f"gpu_memory_utilization must be above 0 and at most 1, not {gpu_memory_utilization}"
        )
    usable = int(gpu.memory_bytes * gpu_memory_utilization)
    weights = shape.weight_bytes(dtype, quantization)
    working = working_bytes(
        shape, max_num_batched_tokens=max_num_batched_tokens, max_num_seqs=max_num_seqs
    )
    num_blocks = (usable - weights - working) // shape.kv_bytes_per_block(
        block_size, kv_bytes_per_element
    )
    if num_blocks < 1:
        raise CapacityError(
            f"{shape.name} does not fit {gpu.name}: weights take {weights / GIB:.1f} GiB and "
            f"working memory {working / GIB:.1f} GiB of {usable / GIB:.1f} GiB usable; choose a "
            "larger GPU or quantize the model"
        )
    return num_blocks
