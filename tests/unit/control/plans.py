"""Plans of one service, what they say, and engines that tell of themselves."""

from dataclasses import replace
from typing import Any

from msgspec import convert

from quire_engine.protocol.state import EngineState
from quire_operator.planner.observed import Engine, Observed, Pod, engine_from, pod_from
from quire_operator.planner.plan import Plan, plan
from tests.unit.control.builders import L4, NOW, SETTINGS, external, gateways, service

BODY: dict[str, Any] = {
    "metadata": {
        "name": "chat-l4-1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"serving.quire.dev/accelerator": "l4", "pod-template-hash": "a"},
    },
    "spec": {"nodeName": "n1"},
    "status": {"conditions": [{"type": "PodScheduled", "status": "True"}]},
}


def said(made: Plan, kind: str) -> tuple[str, str, str]:
    found = next(one for one in made.status.conditions if one.type == kind)
    return found.status, found.reason, found.message


def planned(*pods: Pod, **observed: Any) -> Plan:
    seen = Observed(
        service=service(L4, **external(1)),
        pods=pods,
        root_secret=b"s" * 32,
        gateways=gateways("10.0.0.1"),
    )
    return plan(replace(seen, **observed), SETTINGS, NOW)


def failing(waiting: dict[str, str] | None = None, ended: dict[str, Any] | None = None) -> Pod:
    container: dict[str, Any] = {"image": "engine:1", "restartCount": 4, "state": {}}
    if waiting:
        container["state"] = {"waiting": waiting}
    if ended:
        container["lastState"] = {"terminated": ended}
    status = BODY["status"] | {"containerStatuses": [container]}
    return pod_from(BODY | {"status": status})


def engine(held: int, **more: Any) -> Engine:
    """What plans know of an engine that says such a state."""
    return engine_from(state_of(held, **more))


def state_of(held: int, **more: Any) -> EngineState:
    """An engine's state."""
    blocks = {"total": 1000, "held": held, "free": 0, "cached": 0, "reserved": 300, "queued": 0}
    log = {"first_number": 0, "next_number": 0}
    return convert(
        {
            "schema_version": 1,
            "sequence": 1,
            "age_seconds": 0.0,
            "model_id": "m",
            "config_hash": "h",
            "is_ready": True,
            "is_draining": False,
            "tokens_per_block": 16,
            "max_model_len": 4096,
            "blocks": blocks,
            "num_overshoot_blocks": 0,
            "sequences": {"running": 0, "waiting": 0, "slots": 8},
            "pressure": None,
            "thresholds": None,
            "output_lengths": None,
            "step_time": None,
            "z": None,
            "gateways": {},
            "prefix_chunks": log,
            "num_filled_tokens": 0,
            "num_preemptions": 0,
            "num_recomputed_tokens": 0,
            "num_core_restarts": 0,
            "model_revision": "abc",
            **more,
        },
        EngineState,
    )
