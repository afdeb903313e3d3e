"""The anchor models with dummy weights, and engines of them in this process."""

from __future__ import annotations

import random

from quire_engine.config import (
    AdmissionConfig,
    CacheConfig,
    EngineConfig,
    ModelConfig,
    SchedulerConfig,
)
from quire_engine.core.engine import EngineCore
from quire_engine.execution.cuda.ahead import spec_of
from quire_engine.execution.cuda.executor import CudaExecutor
from quire_engine.execution.cuda.weights import RandomWeights
from quire_engine.profiles.shapes import find_shape

MAX_MODEL_LEN = 4096

CONFIG = EngineConfig(
    model=ModelConfig(max_model_len=MAX_MODEL_LEN),
    cache=CacheConfig(enable_prefix_caching=False),
    scheduler=SchedulerConfig(max_num_seqs=256, max_num_batched_tokens=8192),
    admission=AdmissionConfig(admission_ceiling=1.0),
)


def dummy_weights(shape_name: str) -> RandomWeights:
    """Random bf16 weights of a model shape."""
    shape = find_shape(shape_name)
    return RandomWeights(spec_of(shape), has_head_norms=shape.has_qk_norm)


def start_engine(shape_name: str) -> tuple[EngineCore, CudaExecutor]:
    """Load, profile, allocate and capture: ready for requests."""
    executor = CudaExecutor(CONFIG, dummy_weights(shape_name))
    executor.load(lambda _stage, _fraction: None)
    facts = executor.allocate_cache()
    core = EngineCore(CONFIG, executor, facts, random_source=random.Random(0))
    return core, executor
