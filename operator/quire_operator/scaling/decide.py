"""Deciding all services together: every few seconds, from what is heard and remembered.

    inputs ──► demand ──► offers ──► rates that are planned for ──► rules ──► decision
                 ▲  │       ▲                   ▲                               │
                 │  ▼       │                   │                               │
               memory ──────┴───────────────────┘ ◄─────────────────────────────┘

Services are decided one after another, the most important first, so that GPUs that several of them
may have go to those.
"""

import logging
from collections.abc import Collection
from dataclasses import replace

from quire_operator.scaling import failures
from quire_operator.scaling.case import Case, Step
from quire_operator.scaling.caution import learn
from quire_operator.scaling.decision import (
    Decision,
    Finding,
    ScalingMemory,
    ServiceDecision,
    ServiceMemory,
)
from quire_operator.scaling.fleet import Fleet, see_fleet
from quire_operator.scaling.hearing import hear
from quire_operator.scaling.inputs import ScalingInputs, ServiceInputs
from quire_operator.scaling.keeping import correct, keep_shares, rejuvenate
from quire_operator.scaling.leaving import see_off
from quire_operator.scaling.mix import Room
from quire_operator.scaling.preparing import Seen, prepare
from quire_operator.scaling.reporting import report
from quire_operator.scaling.rooms import Rooms
from quire_operator.scaling.service import decide_step
from quire_operator.scaling.shortages import Shortages, pardon
from quire_operator.scaling.soundness import keep_sound

_log = logging.getLogger(__name__)


def decide(
    inputs: ScalingInputs, memory: ScalingMemory, changed: Collection[str] | None = None
) -> tuple[Decision, ScalingMemory]:
    """Decide all services. One that cannot be decided stays as it is, and the others are decided.

    Parameters
    ----------
    memory
        What the last decision returned; an empty one after a start.
    changed
        Keys of services to decide out of turn, for their specs have changed: nothing was counted
        since the last decision, and all others stay as they are. None: it is everybody's turn.
    """
    turn = [one for one in inputs.services if changed is None or one.key in changed]
    nonsense = {}
    sound = {one.key: one for one in inputs.services}
    for one in turn:
        sound[one.key], findings = keep_sound(one)
        nonsense[one.key] = tuple(findings)
    inputs = replace(inputs, services=tuple(sound.values()))
    memories = {
        one.key: rejuvenate(memory.services.get(one.key), one, inputs, memory.at)
        for one in inputs.services
    }
    shortages = Shortages(inputs)
    found = {one.key: shortages.find(one, memories[one.key]) for one in inputs.services}
    short = {key: shortages.limiting(one) for key, one in found.items()}
    rooms = Rooms(inputs, short)
    decided: dict[str, ServiceDecision] = {}
    others = memory.services.keys() if changed is not None else ()
    known = {key: one for key, one in memories.items() if key in others}
    for service in sorted(inputs.services, key=lambda one: (-one.priority, one.key)):
        key = service.key
        if key not in nonsense:
            rooms.keep(service)
            continue
        known_failures = failures.find(service, memories[key].failures, inputs.now)
        retried = {name: one for name, one in found[key].items() if name not in short[key]}
        remembered = replace(
            memories[key], short=short[key], retried=retried, failures=known_failures
        )
        decision, known[key] = _decide_or_hold(
            service, inputs, remembered, rooms, is_between=changed is not None
        )
        decided[key] = replace(decision, findings=(*decision.findings, *nonsense[key]))
        rooms.decide(service, decision.replicas)
    decisions = tuple(decided[one.key] for one in turn)
    return Decision(services=decisions), ScalingMemory(services=known, at=inputs.now)


def _decide_or_hold(
    service: ServiceInputs,
    inputs: ScalingInputs,
    memory: ServiceMemory,
    rooms: Rooms,
    *,
    is_between: bool,
) -> tuple[ServiceDecision, ServiceMemory]:
    """Decide a service; if that fails, its replicas stay as they are, and memory begins anew.

    The log is told when it fails otherwise than the last time.
    """
    try:
        decision, known = _decide_one(
            service, inputs, memory, rooms.of(service), is_between=is_between
        )
    except Exception as error:  # noqa: BLE001 - a bug must not take the other services' replicas
        failure = repr(error)
        if failure != memory.failure:
            _log.exception("%s: the decision failed: replicas stay as they are", service.key)
        anew = rejuvenate(None, service, inputs, None)
        decision = replace(
            _leave_alone(service, see_fleet(service, memory.short)),
            reason="the decision failed, and the replicas stay as they are",
            findings=(Finding(code="DecisionFailed", message=failure[:256]),),
            are_metrics_fresh=False,
        )
        kept = replace(
            anew,
            short=memory.short,
            retried=memory.retried,
            failures=memory.failures,
            failure=failure,
        )
        return decision, kept
    return decision, replace(known, failure="")


def _decide_one(
    service: ServiceInputs,
    inputs: ScalingInputs,
    memory: ServiceMemory,
    rooms: tuple[Room, ...],
    *,
    is_between: bool,
) -> tuple[ServiceDecision, ServiceMemory]:
    heard = hear(service, memory.unheard_since, inputs)
    memory = replace(memory, unheard_since=heard.unheard_since)
    avoided = failures.avoided(memory.failures, inputs.now)
    fleet = see_fleet(service, memory.short, heard.silent, avoided)
    if service.is_suspended or service.mode == "External":
        return _leave_alone(service, fleet), memory
    seen = Seen(
        service=service,
        now=inputs.now,
        heard=heard,
        fleet=fleet,
        rooms=rooms,
        is_between=is_between,
    )
    case, memory = prepare(seen, memory)
    step = decide_step(case)
    is_rising = step.action == "Up" or step.is_rising
    is_adding = any(count > fleet.ordered[name] for name, count in step.replicas.items())
    memory = replace(
        memory,
        added_at=inputs.now if is_adding else memory.added_at,
        rising_since=(memory.rising_since or inputs.now) if is_rising else None,
        pressed_since=case.urgency.pressed_since,
        better_since=(memory.better_since or inputs.now) if step.is_better_known else None,
        relied_on=fleet.useful if heard.is_any else memory.relied_on,
    )
    if not is_adding:
        memory = _try_again(case, memory, step, inputs.retry_accelerator_seconds)
    memory = correct(case, memory)
    memory = replace(memory, caution=learn(case, step, memory.caution))
    memory = keep_shares(case, memory)
    decision = report(case, memory, step)
    if service.mode == "Recommend":
        return _only_recommend(decision, fleet, step), memory
    return see_off(case, step, decision), memory


def _try_again(
    case: Case, memory: ServiceMemory, step: Step, retry_seconds: float
) -> ServiceMemory:
    """More is needed, and nothing can be added: what did not come is tried once more.

    At once where nothing serves or will. What waits for a node may wait on.
    """
    service, now = case.service, case.now
    if case.fleet.num_useful:
        if not (step.is_stuck or _is_below_minimum(service, memory, step)):
            return memory
        return replace(memory, short=pardon(memory.short, now, retry_seconds))
    if not (case.is_asked or service.min_replicas > 0):
        return memory
    after_seconds = 0.0 if case.is_at_zero else retry_seconds
    return replace(
        memory,
        short=pardon(memory.short, now, after_seconds),
        failures=failures.pardon(memory.failures, now),
    )


def _is_below_minimum(service: ServiceInputs, memory: ServiceMemory, step: Step) -> bool:
    """Whether there are fewer than the spec wants, in all or of what is short."""
    return sum(step.replicas.values()) < service.min_replicas or any(
        step.replicas[one.name] < min(one.min_replicas, one.max_replicas)
        for one in service.accelerators
        if one.name in memory.short
    )


def _leave_alone(service: ServiceInputs, fleet: Fleet) -> ServiceDecision:
    replicas = dict.fromkeys(fleet.ordered, 0) if service.is_suspended else dict(fleet.ordered)
    reason = "spec.suspend is true" if service.is_suspended else "scaling.mode is External"
    leaving = {} if service.is_suspended else {one.name: one.replicas for one in service.leaving}
    return ServiceDecision(
        key=service.key,
        action="Hold",
        replicas=replicas,
        wanted=replicas,
        leaving=leaving,
        reason=reason,
    )


def _only_recommend(decision: ServiceDecision, fleet: Fleet, step: Step) -> ServiceDecision:
    """Say what would be done, and do nothing."""
    would = "would hold" if step.action == "Hold" else f"would take the step {step.action}"
    return replace(
        decision,
        action="Hold",
        replicas=dict(fleet.ordered),
        victims=(),
        reason=f"scaling.mode is Recommend; Auto {would}: {decision.reason}",
    )
