"""The status of a service, from what is observed."""

from datetime import datetime

from quire_operator.planner.conditions import conditions, stamp
from quire_operator.planner.findings import Findings
from quire_operator.planner.kept import keep
from quire_operator.planner.memory import Misfit
from quire_operator.planner.names import engine_selector
from quire_operator.planner.network import url_of
from quire_operator.planner.observed import Engine, Observed
from quire_operator.planner.pinning import resolve
from quire_operator.planner.placement import Placement, price_of, wanted_replicas
from quire_operator.planner.ready import promised
from quire_operator.planner.settings import PlannerSettings
from quire_operator.resource.status import (
    AcceleratorStatus,
    AdmissionState,
    InferenceServiceStatus,
)

_STEP_PERCENT = 5
_MOST_HELD, _MOST_RESERVED = 100, 1000
"""Percent: engines are not believed more, and the API server takes no more."""


def status_of(
    observed: Observed,
    placement: Placement,
    findings: Findings,
    misfits: list[Misfit],
    settings: PlannerSettings,
    now: datetime,
) -> InferenceServiceStatus:
    """What is so now. Equal to the one before when nothing that it says has changed."""
    service = observed.service
    before = service.status
    revision, source = resolve(observed, findings)
    accelerators = _accelerators(observed, placement)
    selector = ",".join(f"{key}={value}" for key, value in engine_selector(service.name).items())
    return InferenceServiceStatus(
        observed_generation=service.generation,
        url=url_of(observed, settings),
        selector=selector,
        replicas=findings.num_pods,
        ready_replicas=findings.num_ready,
        desired_replicas=sum(placement.replicas.values()),
        promised_replicas=promised(observed, findings),
        kept_replicas=keep(observed, wanted_replicas(observed), placement.replicas),
        claims=observed.standing.claims,
        model=service.served_name,
        resolved_revision=revision,
        resolved_source=source,
        hourly_cost=_cost(observed, placement),
        admission_state=_admission_state(observed, findings),
        ready_on=_ready_on(accelerators),
        blocks_held_percent=_percent(
            [*observed.engines.values()],
            [one.num_held for one in observed.engines.values()],
            _MOST_HELD,
        ),
        loading_percent=min(
            (one.loading_percent for one in accelerators if one.loading_percent is not None),
            default=None,
        ),
        tokens_per_second=_tokens_per_second(accelerators),
        accelerators=accelerators,
        conditions=conditions(observed, placement, findings, misfits, settings, now),
        last_scaling_decision=observed.last_scaling or before.last_scaling_decision,
    )


def _accelerators(observed: Observed, placement: Placement) -> tuple[AcceleratorStatus, ...]:
    found = []
    for name, desired in placement.replicas.items():
        pods = [pod for pod in observed.pods if pod.accelerator == name and not pod.is_ending]
        engines = [observed.engines[pod.name] for pod in pods if pod.name in observed.engines]
        since = placement.short_since.get(name)
        behind = min(
            (observed.loading[pod.name] for pod in pods if pod.name in observed.loading),
            default=None,
        )
        found.append(
            AcceleratorStatus(
                name=name,
                desired=desired,
                scheduled=sum(pod.is_scheduled for pod in pods),
                ready=sum(pod.is_ready for pod in pods),
                blocks_held_percent=_percent(
                    engines, [one.num_held for one in engines], _MOST_HELD
                ),
                blocks_reserved_percent=_percent(
                    engines, [one.num_reserved for one in engines], _MOST_RESERVED
                ),
                short_since=stamp(since) if since else None,
                loading_phase=behind.phase if behind else None,
                loading_percent=behind.percent if behind else None,
                tokens_per_second=observed.scaled.tokens_per_second.get(name)
                if observed.scaled
                else None,
            )
        )
    return tuple(found)


def _ready_on(accelerators: tuple[AcceleratorStatus, ...]) -> str:
    return ", ".join(f"{one.ready}/{one.desired} {one.name}" for one in accelerators if one.desired)


def _tokens_per_second(accelerators: tuple[AcceleratorStatus, ...]) -> int | None:
    """None where it is not known of all that answer."""
    there = [one for one in accelerators if one.ready]
    rates = [one.ready * one.tokens_per_second for one in there if one.tokens_per_second]
    return sum(rates) if there and len(rates) == len(there) else None


def _percent(engines: list[Engine], parts: list[int], most: int) -> int | None:
    """Of all engines' blocks, rounded to 5 %: finer figures belong to metrics."""
    total = sum(one.num_blocks for one in engines)
    if total <= 0:
        return None
    share = 100 * sum(parts) / total
    return min(max(round(share / _STEP_PERCENT) * _STEP_PERCENT, 0), most)


def _cost(observed: Observed, placement: Placement) -> str | None:
    """None where a price is not known: half a sum would be wrong.

    That of an accelerator that left the spec went with it, while its replicas serve on.
    """
    if any(placement.leaving.values()):
        return None
    total = 0.0
    for accelerator in observed.service.spec.accelerators:
        replicas = placement.replicas.get(accelerator.name, 0)
        price = price_of(accelerator)
        if replicas and price is None:
            return None
        total += replicas * (price or 0.0)
    return f"{total:.2f}"


def _admission_state(observed: Observed, findings: Findings) -> AdmissionState:
    if observed.service.spec.suspend:
        return "Suspended"
    if findings.num_ready == 0:
        return "NoReplicas"
    engines = observed.engines.values()
    if engines and all(one.is_refusing for one in engines):
        return "Refusing"
    background = observed.service.spec.memory_pressure.background_limit / 100
    if engines and all(one.num_reserved >= background * one.num_blocks for one in engines):
        return "BackgroundRefused"
    return "Open"
