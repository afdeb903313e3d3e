"""Chooses the executor that a configuration asks for; torch is imported only where it computes."""

import logging
from pathlib import Path

from quire_engine.config import EngineConfig
from quire_engine.errors import ConfigError
from quire_engine.execution.base import Executor

_DEVICE = Path("/dev/nvidiactl")
"""Is there where NVIDIA's driver is loaded, and in containers that were given a GPU."""
_log = logging.getLogger(__name__)


def create_executor(config: EngineConfig, model_path: Path | None) -> Executor:
    """Create an executor; it loads nothing yet.

    Parameters
    ----------
    model_path
        A GGUF file, or a Hugging Face folder; None with `executor.simulate`, which needs none.

    Raises
    ------
    ConfigError
        The device or type is not supported, or there is no model to compute.
    """
    if config.executor.simulate is not None:
        from quire_engine.execution.simulated import SimulatedExecutor

        return SimulatedExecutor(config)
    if model_path is None:
        raise ConfigError("there is no model to compute: name one, or use --simulate")
    if config.executor.device == "cuda" or (config.executor.device == "auto" and _has_cuda()):
        from quire_engine.execution.cuda.executor import CudaExecutor

        return CudaExecutor(config, model_path)
    from quire_engine.execution.native_cpu.choice import CpuExecutor

    return CpuExecutor(config, model_path)


def _has_cuda(device: Path = _DEVICE) -> bool:
    """Whether torch finds a GPU; where there is one that it does not find, the log says why."""
    import torch

    if torch.cuda.is_available():
        return True
    if device.exists():
        from quire_engine.execution.cuda.platform import reason_without_cuda

        _log.warning(
            "the CPU computes: there is an NVIDIA GPU, but torch cannot use it (%s)",
            reason_without_cuda(),
        )
    return False
