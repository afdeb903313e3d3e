"""Engines as a library, small enough for a test."""

from quire_engine import GenerationParams, make_config
from quire_engine.config import EngineConfig


def configure(**settings: object) -> EngineConfig:
    stand_in = {"simulate": "h100", "model_shape": "llama3-8b", "simulated_step_seconds": 0.0}
    return make_config(**stand_in, max_model_len=256, max_num_blocks=64, **settings)


def of_tokens(count: int, **choices: object) -> GenerationParams:
    return GenerationParams(max_tokens=count, **choices)  # type: ignore[arg-type]
