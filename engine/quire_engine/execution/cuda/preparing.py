"""What is done once on a device before the cache is sized, and how its failures are told."""

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from quire_engine.errors import CapacityError, ConfigError, QuireError
from quire_engine.execution.cuda.kernel_cache import kernels_folder
from quire_engine.execution.cuda.model import CudaDecoder
from quire_engine.execution.cuda.platform import Platform
from quire_kernels.errors import KernelError

_TUNED_TOKENS = 1024
_MAX_LINE = 300
_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def refusals(work: str) -> Iterator[None]:
    """Turn what goes wrong while an engine prepares into a refusal to start, with the reason.

    Parameters
    ----------
    work
        What is done, for people: "the GPU failed while" is said before it.

    Raises
    ------
    CapacityError
        The device's memory ran out.
    ConfigError
        There is no kernel, one does not compile or finds no room on the disk, the C compiler fails,
        or a graph cannot be captured.
    """
    try:
        yield
    except QuireError:
        raise
    except torch.OutOfMemoryError as error:
        raise CapacityError(
            f"the GPU's memory ran out while {work}: lower max_num_batched_tokens, max_num_seqs or "
            f"gpu_memory_utilization ({_first_line(error)})"
        ) from error
    except KernelError as error:
        raise ConfigError(f"the GPU cannot compute this model: {error}") from error
    except subprocess.CalledProcessError as error:
        raise ConfigError(
            f"the C compiler failed while {work}, and said why above: Triton makes a small module "
            f"with it, which takes a linker and Python's headers, too ({_first_line(error)})"
        ) from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            raise ConfigError(
                f"the disk was full while {work}: free some of it, or name a folder on another "
                f"with QUIRE_CACHE; kernels are kept in {kernels_folder()} ({_first_line(error)})"
            ) from error
        raise ConfigError(
            f"the GPU failed while {work}: {type(error).__name__}: {_first_line(error)}"
        ) from error


def tune_unknown_device(platform: Platform, decoder: CudaDecoder, block_size: int) -> None:
    """Time the attention kernels' tiles where no table covers the device: a minute, once."""
    if not platform.is_cuda:
        return
    from quire_kernels.tuning.search import tune_attention

    spec = decoder.spec
    chance = torch.Generator(platform.device).manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=platform.dtype, device=platform.device, generator=chance)

    blocks = draw(_TUNED_TOKENS // block_size + 1, spec.num_kv_heads, block_size, spec.head_dim)
    tune_attention(draw(_TUNED_TOKENS, spec.num_heads, spec.head_dim), blocks, blocks)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return lines[0][:_MAX_LINE]
