"""Memory that costs nothing until it is written."""

import numpy as np
import torch


def lazy_zeros(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return zeros, contiguous, CPU, whose pages the system maps at their first write.

    torch's own zeros may be written at once: a KV cache of 1 GiB then takes 1 GiB for one token.
    """
    memory = np.zeros((*shape[:-1], shape[-1] * dtype.itemsize), dtype=np.uint8)
    return torch.from_numpy(memory).view(dtype)
