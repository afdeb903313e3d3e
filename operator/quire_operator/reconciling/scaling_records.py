"""What was decided last of each service, as plans know it and statuses show it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from quire_operator.planner.conditions import stamp
from quire_operator.planner.observed import Observed
from quire_operator.resource.kinds import ScalingMode
from quire_operator.resource.status import ReplicasOn, ScalingDecision
from quire_operator.scaling.decision import ServiceDecision
from quire_operator.scaling.outcome import Outcome, outcome_of

_Key = tuple[str, str]

_MOST_INPUTS = 32
_MOST_ACCELERATORS = 16
"""What the status takes: those that leave the spec come beside as many as that may have."""
_MOST_REASON = 2000
"""Letters."""


@dataclass(frozen=True)
class Taken:
    """What is new of a decision."""

    is_news: bool
    """Whether a plan would be another one than before."""
    record: ScalingDecision | None
    """For the status, if it changes replicas or advises another number than before."""


class ScalingRecords:
    """The newest of each service, by namespace and name."""

    def __init__(self) -> None:
        self._outcomes: dict[_Key, Outcome] = {}
        self._modes: dict[_Key, ScalingMode] = {}
        """In which each of these was decided."""
        self._last: dict[_Key, ScalingDecision] = {}

    def add_to(self, observed: Observed) -> Observed:
        """Let a plan know what was decided.

        In Auto only what was decided in Auto: before, replicas were somebody else's, and what they
        were when they were looked at last is nothing that was ordered.
        """
        key, mode = observed.service.key, observed.service.spec.scaling.mode
        return replace(
            observed,
            is_scaling=True,
            scaled=self.ordered(key) if mode == "Auto" else self._outcomes.get(key),
            last_scaling=self._last.get(key),
        )

    def ordered(self, service: _Key) -> Outcome | None:
        """What was decided last, if that was an order; None: there is none."""
        return self._outcomes.get(service) if self._modes.get(service) == "Auto" else None

    def forget(self, service: _Key) -> None:
        """It is gone, or its replicas are somebody else's to decide."""
        self._outcomes.pop(service, None)
        self._modes.pop(service, None)
        self._last.pop(service, None)

    def take(self, observed: Observed, decision: ServiceDecision, now: datetime) -> Taken:
        """Keep what was decided now."""
        key, mode = observed.service.key, observed.service.spec.scaling.mode
        before = {name: one.replicas for name, one in observed.deployments.items()}
        record = None
        if decision.is_change:
            gone = dict.fromkeys(sorted(before.keys() - decision.replicas.keys()), 0)
            after = {**decision.replicas, **gone, **decision.leaving}
            record = _record(before, after, decision, now)
        elif mode == "Recommend" and self._is_new_advice(observed, decision.wanted):
            record = _record(before, decision.wanted, decision, now)
        if record is not None:
            self._last[key] = record
        outcome = outcome_of(decision)
        is_news = decision.is_change or outcome != self._outcomes.get(key)
        self._outcomes[key], self._modes[key] = outcome, mode
        return Taken(is_news, record)

    def _is_new_advice(self, observed: Observed, wanted: Mapping[str, int]) -> bool:
        service = observed.service
        last = self._last.get(service.key, service.status.last_scaling_decision)
        return last is None or {one.name: one.replicas for one in last.after} != dict(wanted)


def _record(
    before: Mapping[str, int], after: Mapping[str, int], decision: ServiceDecision, now: datetime
) -> ScalingDecision:
    names = _named(before, after)
    return ScalingDecision(
        time=stamp(now.astimezone(UTC)),
        before=_replicas(before, names),
        after=_replicas(after, names),
        reason=decision.reason[:_MOST_REASON],
        inputs=dict(list(decision.inputs.items())[:_MOST_INPUTS]),
    )


def _named(before: Mapping[str, int], after: Mapping[str, int]) -> frozenset[str]:
    """Accelerators of a record: all, or as many as it has room for, those that change first."""
    names = dict.fromkeys((*after, *before))
    is_alike = {name: before.get(name, 0) == after.get(name, 0) for name in names}
    return frozenset(sorted(names, key=lambda name: is_alike[name])[:_MOST_ACCELERATORS])


def _replicas(counts: Mapping[str, int], names: frozenset[str]) -> tuple[ReplicasOn, ...]:
    return tuple(
        ReplicasOn(name=name, replicas=count) for name, count in counts.items() if name in names
    )
