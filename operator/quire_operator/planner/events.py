"""Events: one for each transition of a condition that says something new; reasons never change.

That all is ready says that all has a node and is settled; and what is under way is no warning.
"""

from typing import NamedTuple

from quire_operator.planner.ready import SCALING_UP
from quire_operator.resource.kinds import ScalingMode
from quire_operator.resource.status import Condition, InferenceServiceStatus

RECOMMENDED = "ScalingRecommended"
"""Nothing was scaled."""
_GOOD_WHEN_FALSE = frozenset(("Degraded", "Progressing"))
_SILENT = frozenset(("ModelLoaded", "MetricsFresh", "ScalingActive"))
"""Said by others, or too often."""


class Event(NamedTuple):
    """What `kubectl describe` shows."""

    kind: str
    """Normal or Warning."""
    reason: str
    message: str


def transitions(
    before: InferenceServiceStatus, after: InferenceServiceStatus, mode: ScalingMode
) -> list[Event]:
    """What has become so, or for another reason."""
    return [*_scaled(before, after, mode), *_transitions(before, after)]


def _scaled(
    before: InferenceServiceStatus, after: InferenceServiceStatus, mode: ScalingMode
) -> list[Event]:
    """The change of the number of replicas, with its reason; or what would be changed.

    Advice is told without figures: the same is told once, however the traffic goes to and fro.
    """
    decision = after.last_scaling_decision
    if decision is None or decision == before.last_scaling_decision:
        return []
    old = {one.name: one.replicas for one in decision.before}
    parts = [
        f"{one.name} {old.get(one.name, 0)} -> {one.replicas}"
        for one in decision.after
        if one.replicas != old.get(one.name, 0)
    ]
    if not parts:
        return []
    change = ", ".join(parts)
    if mode == "Recommend":
        words = f"Auto would scale {change}; status.lastScalingDecision says why"
        return [Event("Normal", RECOMMENDED, words)]
    return [Event("Normal", "Scaled", f"{change}: {decision.reason}")]


def _transitions(before: InferenceServiceStatus, after: InferenceServiceStatus) -> list[Event]:
    old = {one.type: one for one in before.conditions}
    changed = {
        one.type: one
        for one in after.conditions
        if one.type not in _SILENT and _has_changed(old.get(one.type), one)
    }
    ready = changed.pop("Ready", None)
    if ready is not None and ready.reason == SCALING_UP:
        changed = {name: one for name, one in changed.items() if name == "GPUsAvailable"}
        return [_event(one) for one in (ready, *changed.values())]
    if ready is not None and ready.status == "True":
        return [_event(ready)]
    if not old and "Progressing" in changed:
        changed.pop("Available", None)  # of a service that begins, that is no news
    return [_event(one) for one in changed.values()]


def _has_changed(old: Condition | None, new: Condition) -> bool:
    if new.status == "Unknown":
        return False  # what nobody knows yet is no news
    if old is None:
        return new.status == ("True" if new.type in _GOOD_WHEN_FALSE else "False")
    return (old.status, old.reason) != (new.status, new.reason)


def _event(condition: Condition) -> Event:
    is_good = condition.status == ("False" if condition.type in _GOOD_WHEN_FALSE else "True")
    is_harmless = condition.type == "Progressing"
    kind = "Normal" if is_good or is_harmless else "Warning"
    return Event(kind, condition.reason, condition.message or condition.type)
