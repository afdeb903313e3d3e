"""Everything that people see of a run, as of one moment: what the live page is sent.

Nothing of a request's text is in it, and no key.
"""

from collections.abc import Iterable

import msgspec

from quire_engine.protocol.messages import BlockCounts
from quire_local.up.control import Control
from quire_local.up.engine import Engine
from quire_local.up.resource_file import Key
from quire_operator.planner.events import Event
from quire_operator.reconciling.scaling_reports import SeenEngine, SeenQueue, SeenService
from quire_operator.resource.status import (
    AcceleratorStatus,
    Condition,
    InferenceServiceStatus,
    ScalingDecision,
)


class News(msgspec.Struct, kw_only=True, frozen=True):
    """Something that happened."""

    at: str
    subject: str
    """A service, an engine, the gateway or the file."""
    event: Event


class EngineShown(msgspec.Struct, kw_only=True, frozen=True):
    """One engine."""

    name: str
    accelerator: str
    gpu: str
    """Simulated one that it has, or empty."""
    phase: str
    """waiting, starting, ready, restarting, ending."""
    why: str
    """Of what is not as it should be."""
    pid: int | None
    num_restarts: int
    blocks: BlockCounts | None
    running: int
    waiting: int
    slots: int
    pressure: float | None
    binding: str
    admission: float | None
    """Share of the blocks up to which interactive requests are admitted, in force now."""


class ServiceShown(msgspec.Struct, kw_only=True, frozen=True):
    """One service."""

    name: str
    model: str
    is_suspended: bool
    ready_replicas: int
    desired_replicas: int
    hourly_cost: str | None
    accelerators: tuple[AcceleratorStatus, ...]
    conditions: tuple[Condition, ...]
    decisions: tuple[ScalingDecision, ...]
    """How many replicas there are to be, and why; the newest first."""
    queue: dict[str, SeenQueue]
    engines: list[EngineShown]


class Snapshot(msgspec.Struct, kw_only=True, frozen=True):
    """The whole run."""

    url: str
    is_gateway_ready: bool
    file: str
    file_problem: str
    services: list[ServiceShown]
    news: list[News]


def take_snapshot(
    control: Control,
    *,
    url: str,
    is_gateway_ready: bool,
    file: str,
    file_problem: str,
    news: Iterable[News],
) -> Snapshot:
    """Collect it."""
    seen = {(one.namespace, one.name): one for one in control.seen_services}
    return Snapshot(
        url=f"{url}/v1" if url else "",
        is_gateway_ready=is_gateway_ready,
        file=file,
        file_problem=file_problem,
        services=[
            _service(control, key, status, seen.get(key))
            for key, status in control.statuses.items()
        ],
        news=list(news),
    )


def _service(
    control: Control, key: Key, status: InferenceServiceStatus, seen: SeenService | None
) -> ServiceShown:
    return ServiceShown(
        name=key[1],
        model=status.model,
        is_suspended=control.services[key].spec.suspend,
        ready_replicas=status.ready_replicas,
        desired_replicas=status.desired_replicas,
        hourly_cost=status.hourly_cost,
        accelerators=status.accelerators,
        conditions=status.conditions,
        decisions=control.scaling.decisions(key),
        queue=seen.queue if seen else {},
        engines=[_engine(one, control.fresh(one)) for one in control.engines_of(key)],
    )


def _engine(engine: Engine, seen: SeenEngine | None) -> EngineShown:
    state = seen.state if seen else None
    pressure = state.pressure if state else None
    phase, why = _phase(engine)
    return EngineShown(
        name=engine.name,
        accelerator=engine.accelerator,
        gpu=(engine.node or "").removeprefix("simulated-"),
        phase=phase,
        why=why,
        pid=engine.pid,
        num_restarts=engine.num_restarts,
        blocks=state.blocks if state else None,
        running=state.sequences.running if state else 0,
        waiting=state.sequences.waiting if state else 0,
        slots=state.sequences.slots if state else 0,
        pressure=pressure.value if pressure else None,
        binding=pressure.binding if pressure else "",
        admission=state.thresholds.admission if state and state.thresholds else None,
    )


def _phase(engine: Engine) -> tuple[str, str]:
    pod = engine.observed()
    if pod.is_ending:
        return "ending", "it finishes its requests"
    if pod.unschedulable_since:
        return "waiting", pod.scheduler_message
    if pod.waiting_reason:
        return "restarting", pod.waiting_message or _last_words(pod.last_exit_message)
    if pod.is_ready:
        return "ready", ""
    return "starting", _last_words(pod.last_exit_message)


def _last_words(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
