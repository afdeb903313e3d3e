"""Where the executor computes: a CUDA device, or a CPU that interprets the kernels for tests."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from quire_engine.config import EngineConfig
from quire_engine.errors import ConfigError

_DTYPES = {"auto": torch.bfloat16, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Event:
    """A point in the device's work that the host can wait for.

    Parameters
    ----------
    has_time
        Whether `seconds_since` is to be asked.
    """

    def __init__(self, platform: "Platform", *, has_time: bool = False) -> None:
        self._event = None
        if platform.is_cuda:
            self._event = torch.Event(platform.device, enable_timing=has_time)

    def record(self) -> None:
        """Mark the work given to the device so far."""
        if self._event is not None:
            self._event.record()

    def wait(self) -> None:
        """Wait until the marked work is done."""
        if self._event is not None:
            self._event.synchronize()

    def seconds_since(self, earlier: "Event") -> float | None:
        """By the device's clock, once both points are behind it; None on a CPU."""
        if self._event is None or earlier._event is None:
            return None
        return earlier._event.elapsed_time(self._event) / 1e3


@dataclass(frozen=True, eq=False)
class Platform:
    """A device, the type computed in, and the one stream that all work goes through."""

    device: torch.device
    dtype: torch.dtype
    stream: torch.cuda.Stream | None = None
    """None on a CPU."""

    @property
    def is_cuda(self) -> bool:
        """Whether this is a GPU: with graphs, pinned memory and a stream."""
        return self.device.type == "cuda"

    def on_stream(self) -> AbstractContextManager[object]:
        """Give work to the executor's stream, not to the default one: graphs need another."""
        if self.stream is None:
            return nullcontext()
        return torch.cuda.stream(self.stream)

    def zero_ints(self, size: int) -> torch.Tensor:
        """[size] int32 on the device."""
        return torch.zeros(size, dtype=torch.int32, device=self.device)

    def host_ints(self, size: int) -> torch.Tensor:
        """[size] int32 in memory that the device copies from and to while the host goes on."""
        return torch.zeros(size, dtype=torch.int32, pin_memory=self.is_cuda)


def cuda_platform(config: EngineConfig) -> Platform:
    """Return the first CUDA device.

    Raises
    ------
    ConfigError
        There is none, it is too old, or the type asked for has no kernels.
    """
    if not torch.cuda.is_available():
        raise ConfigError(
            f"device is cuda, but torch finds no CUDA GPU here ({reason_without_cuda()}): use "
            "--device cpu"
        )
    dtype = dtype_of(config)
    major, minor = torch.cuda.get_device_capability()
    if major < 8:
        raise ConfigError(
            f"{torch.cuda.get_device_name()} has compute capability {major}.{minor}: the kernels "
            "need 8.0 or newer"
        )
    device = torch.device("cuda", torch.cuda.current_device())
    return Platform(device, dtype, torch.cuda.Stream())  # type: ignore[no-untyped-call]


def reason_without_cuda() -> str:
    """Why torch finds no GPU, as it says it: no driver, one that is too old, a build for CPUs."""
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        return str(error).strip().partition("\n")[0].partition(". ")[0]
    return "it says no more"


def dtype_of(config: EngineConfig) -> torch.dtype:
    """Return the type that a GPU computes in; raises ConfigError if it has no kernels."""
    dtype = _DTYPES.get(config.model.dtype)
    if dtype is None:
        raise ConfigError(
            f"dtype {config.model.dtype} has no GPU kernels: use bfloat16 (auto) or float16"
        )
    return dtype
