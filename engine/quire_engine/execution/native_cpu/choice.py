"""Chooses between the C++ kernels and torch when the model is loaded: only then is it known.

Kernels are compiled at first use, which a caller wants to see progress of, and whether they fit
depends on the model.
"""

import logging
from pathlib import Path

from quire_engine.config import EngineConfig
from quire_engine.errors import ConfigError
from quire_engine.execution.base import Batch, Executor, Progress, StepResult
from quire_engine.execution.native_cpu.executor import NativeExecutor
from quire_engine.execution.native_cpu.loading import missing_feature
from quire_engine.execution.torch_cpu.executor import TorchExecutor
from quire_engine.models.config import ModelSpec
from quire_engine.models.loading.weights import open_weights
from quire_engine.protocol.messages import ModelFacts
from quire_kernels.cpu import must_compile, unavailable_reason

_log = logging.getLogger(__name__)

_STAGE = "preparing the CPU kernels"
_STAGE_COMPILING = "compiling the CPU kernels, once for this machine (about 20 s)"


class CpuExecutor(Executor):
    """Computes with the C++ kernels, or with torch in float32 where they cannot be used."""

    def __init__(self, config: EngineConfig, model_path: Path) -> None:
        self._config = config
        self._model_path = model_path
        self.inner: Executor | None = None
        """What computes; None before `load`."""

    def load(self, progress: Progress) -> None:
        """Compile the kernels if they are not there yet, and load the model; see `Executor.load`.

        Raises
        ------
        ConfigError
            dtype is bfloat16 or float16, or batch_invariant is set: only the kernels do that.
        """
        progress(_STAGE_COMPILING if must_compile() else _STAGE, 0.0)
        source = open_weights(self._model_path)
        if self._kernels_unusable(source.spec) is None:
            self.inner = NativeExecutor(self._config, source)
        else:
            self.inner = TorchExecutor(self._config, self._model_path)
        self.inner.load(progress)

    def allocate_cache(self) -> ModelFacts:
        """Allocate the KV memory; see `Executor.allocate_cache`."""
        return self._loaded().allocate_cache()

    def run(self, batch: Batch) -> StepResult:
        """Compute one batch; see `Executor.run`."""
        return self._loaded().run(batch)

    def describe(self) -> str:
        """Describe what computes."""
        return self._loaded().describe()

    def probe(self) -> None:
        """Ask what computes."""
        self._loaded().probe()

    def close(self) -> None:
        """Let go of all memory."""
        if self.inner is not None:
            self.inner.close()

    def _kernels_unusable(self, spec: ModelSpec) -> str | None:
        """Say why torch must compute, in the log too."""
        reason = missing_feature(spec)
        if reason is not None:
            _log.warning("torch computes in float32, not the CPU kernels: %s", reason)
        else:
            reason = unavailable_reason()  # which logs it
        dtype = self._config.model.dtype
        if reason is not None and dtype not in ("auto", "float32"):
            raise ConfigError(
                f"dtype {dtype} needs the CPU kernels, which cannot be used ({reason}): use "
                "float32 or auto"
            )
        if reason is not None and self._config.executor.batch_invariant:
            raise ConfigError(
                f"batch_invariant needs the CPU kernels, which cannot be used ({reason})"
            )
        return reason

    def _loaded(self) -> Executor:
        if self.inner is None:
            raise RuntimeError("bug: the executor is used before `load`")
        return self.inner
