"""Settings of one engine; see `quire_engine.config.engine` for every field."""

from quire_engine.config.engine import (
    AccessConfig,
    AdmissionConfig,
    CacheConfig,
    EngineConfig,
    ExecutorConfig,
    ModelConfig,
    ObservabilityConfig,
    SchedulerConfig,
    ServerConfig,
)
from quire_engine.config.parse import parse

__all__ = [
    "AccessConfig",
    "AdmissionConfig",
    "CacheConfig",
    "EngineConfig",
    "ExecutorConfig",
    "ModelConfig",
    "ObservabilityConfig",
    "SchedulerConfig",
    "ServerConfig",
    "parse",
]
