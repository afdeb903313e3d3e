"""How long a request may be, and how many KV blocks there are."""

from quire_engine.config import EngineConfig
from quire_engine.errors import CapacityError, ConfigError
from quire_engine.models.config import ModelSpec

BYTES_PER_VALUE = 4
"""float32."""


def choose_max_model_len(config: EngineConfig, spec: ModelSpec) -> int:
    """Return the most tokens of one request.

    Raises
    ------
    ConfigError
        The setting exceeds what the model was made for.
    """
    wanted = config.model.max_model_len
    if wanted is not None and wanted > spec.context_length:
        raise ConfigError(
            f"max_model_len {wanted} exceeds the model's context length of {spec.context_length}: "
            "lower it to that"
        )
    return wanted or spec.context_length


def count_blocks(
    config: EngineConfig,
    spec: ModelSpec,
    max_model_len: int,
    *,
    bytes_per_value: int = BYTES_PER_VALUE,
) -> int:
    """Return the KV blocks that requests can use; the null block comes on top.

    Parameters
    ----------
    bytes_per_value
        Size of the cache's type.

    Raises
    ------
    CapacityError
        Not even one request of `max_model_len` fits.
    """
    cache = config.cache
    bytes_per_block = cache.block_size * spec.kv_bytes_per_token(bytes_per_value)
    fitting = max(cache.kv_cache_bytes // bytes_per_block - 1, 0)
    num_blocks = fitting if cache.max_num_blocks is None else cache.max_num_blocks
    needed = -(-max_model_len // cache.block_size)
    if num_blocks < needed:
        shorter = f"lower max_model_len to {num_blocks * cache.block_size}, or "
        raise CapacityError(
            f"one request of max_model_len {max_model_len} tokens needs {needed} KV blocks of "
            f"{bytes_per_block} bytes, and there are {num_blocks}: "
            f"{shorter if num_blocks else ''}raise "
            + (
                f"kv_cache_bytes to {(needed + 1) * bytes_per_block}"
                if cache.max_num_blocks is None
                else f"max_num_blocks to {needed}"
            )
        )
    return num_blocks
