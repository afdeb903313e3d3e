"""States, documents and demands for tests of the gateway."""

from typing import Any

import msgspec

from quire_engine.profiles.output_length import OutputLengthSketch
from quire_engine.profiles.step_time import StepLimits, StepTimeModel
from quire_engine.protocol.messages import BlockCounts, Thresholds
from quire_engine.protocol.state import EngineState, PrefixChunkLog, SequenceCounts
from quire_gateway.choosing.demand import Demand
from quire_gateway.choosing.endpoint import Endpoint
from quire_gateway.routing.document import RoutingDocument

GATEWAY = "g1"
THRESHOLDS = Thresholds(
    admission=0.95, background=0.8, max_queue_seconds=30.0, max_waiting_requests=100
)
LIMITS = StepLimits(num_decodes=256, context_tokens=1 << 20, prefill_tokens=8192)
FAST = StepTimeModel(
    source="fast",
    compute_tokens=(1, 4096),
    compute_seconds=(0.005, 0.1),
    seconds_per_context_token=1e-7,
    limits=LIMITS,
)
SLOW = StepTimeModel(
    source="slow",
    compute_tokens=(1, 4096),
    compute_seconds=(0.05, 1.0),
    seconds_per_context_token=1e-6,
    limits=LIMITS,
)


def state(
    *,
    held: int = 0,
    reserved: int | None = None,
    queued: int = 0,
    total: int = 1000,
    running: int = 0,
    waiting: int = 0,
    counter: int = 0,
    **changes: Any,
) -> EngineState:
    blocks = BlockCounts(
        total=total,
        held=held,
        free=total - held,
        cached=0,
        reserved=held if reserved is None else reserved,
        queued=queued,
    )
    fields: dict[str, Any] = {
        "schema_version": 1,
        "sequence": 1,
        "age_seconds": 0.0,
        "model_id": "m",
        "config_hash": "c",
        "is_ready": True,
        "is_draining": False,
        "tokens_per_block": 16,
        "max_model_len": 8192,
        "blocks": blocks,
        "num_overshoot_blocks": 0,
        "sequences": SequenceCounts(running=running, waiting=waiting, slots=64),
        "pressure": None,
        "thresholds": THRESHOLDS,
        "output_lengths": None,
        "step_time": FAST,
        "z": 2.0,
        "gateways": {GATEWAY: counter},
        "prefix_chunks": PrefixChunkLog(first_number=0, next_number=0),
        "num_filled_tokens": held * 16,
        "num_preemptions": 0,
        "num_recomputed_tokens": 0,
        "num_core_restarts": 0,
    }
    return EngineState(**fields | changes)


def endpoint(number: int = 0, heard: EngineState | None = None, now: float = 0.0) -> Endpoint:
    """An engine that was heard long enough ago not to start slowly any more."""
    made = Endpoint(f"10.0.0.{number}:8000", accelerator="", gateway=GATEWAY, slot=number)
    made.hear(heard or state(), now - 100.0)
    made.beat(now)
    return made


def demand(**changes: Any) -> Demand:
    fields: dict[str, Any] = {
        "num_prompt_tokens": 100,
        "max_tokens": 100,
        "survival": OutputLengthSketch().curve(),
    }
    return Demand(**fields | changes)


def document(**changes: Any) -> dict[str, Any]:
    fields = {
        "schema_version": 1,
        "namespace": "default",
        "name": "chat",
        "model_names": ["m"],
        "thresholds": msgspec.to_builtins(THRESHOLDS),
    }
    return fields | changes


def routing(**changes: Any) -> RoutingDocument:
    return msgspec.convert(document(**changes), RoutingDocument)
