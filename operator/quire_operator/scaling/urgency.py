"""What cannot wait for a rate to be known: requests that are refused, or wait too long.

Pressure above 1 means that interactive requests are refused; how many requests the replicas carry
is then read from the pressure itself. Blocks and seats fill up and stay full, so they count at
once; predicted times come and go with single long prompts, so they must stay for a moment, and
they say no more than that all of the time is taken.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from quire_operator.scaling.decision import Occupied, ServiceMemory
from quire_operator.scaling.demand import Demand
from quire_operator.scaling.hearing import LASTING, FleetPressure, Heard
from quire_operator.scaling.inputs import ServiceInputs

_PATIENCE_SECONDS = 30.0
"""So long must a predicted time have been too long."""
_EDGE = 1.0
_CHANCE = 1.0
"""Standard deviations of how many run, that are not believed until they have been for a while."""
_MOST = 2.5
"""So many times what it can do at the target is the most that a fleet is taken to carry."""
_HALF_LIFE_SECONDS = 150.0
"""Of what is remembered of taken blocks and seats."""
_FEW = 0.5
"""Of the promised time: a queue that is gone sooner is of single long prompts."""
_CLEAR_SECONDS = 60.0
"""In so long a queue should be gone: what comes to help takes as long to start."""


@dataclass(frozen=True, kw_only=True)
class Urgency:
    """How much more than what was counted is planned for, and why."""

    times: float = 1.0
    """By what rates are multiplied, so that they are as many as replicas are taken."""
    reason: str = ""
    pressed_since: float | None = None
    """Since when pressure has been too high."""
    is_late: bool = False
    """Whether requests wait for too long; while help is on its way that is not urgent."""

    @property
    def is_urgent(self) -> bool:
        """Whether replicas are to be added at once."""
        return bool(self.reason)


def occupy(
    memory: ServiceMemory,
    pressure: FleetPressure | None,
    able: Mapping[str, float],
    counts: Mapping[str, int],
    now: float,
) -> ServiceMemory:
    """Remember how many requests a second the taken blocks and seats stand for.

    Requests may stay longer than was computed, as where engines do other work beside: then fewer
    come than what is taken says, and the taken ones are what replicas are needed for. Of longer
    requests as much stands for fewer: what is remembered is counted anew where lengths have
    changed, or are known at last, after a restart.

    Parameters
    ----------
    able
        Requests per second of one replica at the target, by accelerator.
    counts
        Replicas that serve, by accelerator.
    """
    known = memory.occupied
    if pressure is None:
        return memory
    taken = pressure.requests_per_second if pressure.binding in LASTING else 0.0
    kept = 0.5 ** (max(now - known.at, 0.0) / _HALF_LIFE_SECONDS) if known else 0.0
    before = known.requests_per_second * _worth(known.able, able, counts) if known else 0.0
    rate = kept * before + (1.0 - kept) * taken
    return replace(memory, occupied=Occupied(at=now, requests_per_second=rate, able=dict(able)))


def _worth(
    before: Mapping[str, float], now: Mapping[str, float], counts: Mapping[str, int]
) -> float:
    """Requests now that take as much of these replicas as one did before."""
    both = before.keys() & now.keys()
    there = {name: counts.get(name, 0) for name in both}
    if not any(there.values()):
        there = dict.fromkeys(both, 1)
    then = sum(before[name] * count for name, count in there.items())
    return sum(now[name] * count for name, count in there.items()) / then if then > 0 else 1.0


def judge(
    service: ServiceInputs,
    heard: Heard,
    pressure: FleetPressure | None,
    demand: Demand | None,
    memory: ServiceMemory,
    *,
    planned_rate: float,
    able_rate: float,
    is_coming: bool,
    now: float,
) -> Urgency:
    """Judge a service.

    Parameters
    ----------
    planned_rate
        Requests per second that are planned for.
    able_rate
        Requests per second that the ready replicas do at the target.
    is_coming
        Whether replicas are on their way. Then a queue says nothing new, nor do predicted times:
        those who wait were counted when they came.
    """
    pressed = None
    times, reasons = 1.0, []
    if memory.occupied is not None and planned_rate > 0:
        taken = min(memory.occupied.requests_per_second, _MOST * able_rate)
        times = max(times, taken / planned_rate)
    if pressure is not None and pressure.value >= _EDGE:
        pressed = memory.pressed_since if memory.pressed_since is not None else now
        lasts = pressure.binding in LASTING
        if lasts or (not is_coming and now - pressed >= _PATIENCE_SECONDS):
            most = _MOST if lasts else 1.0 / service.pressure.target
            carried = min(pressure.requests_per_second, most * able_rate)
            if now - pressed < _PATIENCE_SECONDS:
                carried *= 1.0 - _CHANCE / math.sqrt(max(heard.num_running, 1))
            times = max(times, carried / planned_rate if planned_rate > 0 else math.inf)
            reasons.append(f"pressure of {pressure.binding} is {100 * pressure.value:.0f} %")
    is_late = False
    if heard.num_waiting and demand is not None and demand.rate > 0:
        deadline = service.max_queue_seconds
        if service.slo.first_token_seconds is not None:
            deadline = min(deadline, service.slo.first_token_seconds)
        predicted = heard.num_waiting / able_rate if able_rate > 0 else math.inf
        is_late = (
            max(predicted, 2 * heard.oldest_seconds) > deadline and predicted > _FEW * deadline
        )
        if is_late and not is_coming:
            times = max(times, 1.0 + heard.num_waiting / _CLEAR_SECONDS / demand.rate)
            whose = "the oldest " if heard.num_waiting > 1 else ""
            reasons.append(f"{heard.waiting}, {whose}for {heard.oldest_seconds:.0f} s")
    return Urgency(
        times=times if math.isfinite(times) else 1.0,
        reason=" and ".join(reasons),
        pressed_since=pressed,
        is_late=is_late,
    )
