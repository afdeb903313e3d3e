"""Profiles of earlier starts: `$QUIRE_CACHE/calibrations/KEY.json`.

The key is everything that step times depend on, as far as it can be read without measuring; what
cannot, such as another load on the machine, is checked by a few steps before a profile is used.
"""

import hashlib
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import msgspec

from quire_engine import __version__
from quire_engine.config import EngineConfig
from quire_engine.errors import ConfigError
from quire_engine.profiles.engine_profile import (
    PROFILE_VERSION,
    EngineProfile,
    load_profile,
    save_profile,
)
from quire_engine.protocol.messages import ModelFacts
from quire_engine.sources.cache import cache_folder, replacing

_NO_MATTER = ("calibration_seconds", "seed", "max_retry_attempts")
"""Settings of the executor that change no step's time."""
_METHOD = 2
"""How steps are measured; 1 was one by one, by the host's clock."""
_WEIGHTS = ("*.safetensors", "*.gguf", "config.json")


class ProfileShelf:
    """Where one engine keeps its profile from start to start.

    Parameters
    ----------
    device
        What computes, as `Executor.describe` says it.
    """

    def __init__(
        self,
        config: EngineConfig,
        facts: ModelFacts,
        model_path: Path,
        device: str,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        key = msgspec.json.encode([_machine(device), _settings(config, facts), _files(model_path)])
        digest = hashlib.sha256(key).hexdigest()[:32]
        self.path = cache_folder(environment) / "calibrations" / f"{digest}.json"

    def find(self) -> EngineProfile | None:
        """The profile, unless there is none, or it is damaged."""
        try:
            return load_profile(self.path.read_bytes())
        except (OSError, ConfigError):
            return None

    def keep(self, profile: EngineProfile) -> None:
        """Store a profile for the next start; raises OSError where that is impossible."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path, self.path.parent) as file:
            file.write(save_profile(profile))


def _machine(device: str) -> list[str | int]:
    return [
        __version__,
        PROFILE_VERSION,
        _METHOD,
        device,
        platform.machine(),
        _processor(),
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
    ]


def _processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith("model name")), "")


def _settings(config: EngineConfig, facts: ModelFacts) -> list[object]:
    executor = {
        name: value for name, value in asdict(config.executor).items() if name not in _NO_MATTER
    }
    return [
        config.model.dtype,
        config.cache.kv_cache_dtype,
        config.scheduler.max_num_seqs,
        config.scheduler.max_num_batched_tokens,
        facts.block_size,
        facts.num_blocks,
        facts.max_model_len,
        executor,
    ]


def _files(path: Path) -> list[tuple[str, int]]:
    """Names and sizes of the model's files; where they lie makes no difference."""
    if path.is_file():
        return [(path.name, path.stat().st_size)]
    found = {file for pattern in _WEIGHTS for file in path.glob(pattern)}
    return sorted((file.name, file.stat().st_size) for file in found)
