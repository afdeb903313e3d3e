"""What is heard, and how old it is: figures that were not heard lately are not used.

A ready replica that has said nothing for long still counts as one that runs, so that nothing is
taken away for its silence; but gateways give it nothing new, so it is not counted on for what
comes, and others stand in. Half of the ready ones at most, rounded up, are written off: where all
are silent it may be the hearing that is at fault, and then twice as many are the most that come.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from quire_operator.scaling.inputs import (
    EngineFigures,
    GatewayFigures,
    Replica,
    ScalingInputs,
    ServiceInputs,
)

_ENOUGH = 0.5
"""Part of the replicas that are counted on that must be heard, for their pressure to mean anything.
"""
_MOST_SILENT = 0.5
"""Part of the ready replicas that may be written off."""
_MOST_PRESSURE = 2.0
"""What is above says no more than that it is far too much."""


@dataclass(frozen=True, kw_only=True)
class Heard:
    """What is known of a service now."""

    gateways: tuple[GatewayFigures, ...]
    """Those that were heard lately."""
    num_gateways: int
    engines: Mapping[str, EngineFigures]
    """By replica, of those that are ready and were heard lately."""
    num_ready: int
    unheard_since: Mapping[str, float]
    """By replica, of those that are ready and were not, as far back as that is known."""
    silent: frozenset[str]
    """Of these, those that are not counted on."""

    @property
    def is_any(self) -> bool:
        """Whether anything is known of what is asked."""
        return bool(self.gateways)

    @property
    def is_all(self) -> bool:
        """Whether enough is known to take anything away."""
        return (
            bool(self.gateways)
            and len(self.gateways) >= self.num_gateways
            and len(self.engines) >= self.num_ready
        )

    @property
    def is_pressure_known(self) -> bool:
        """Whether enough replicas are heard."""
        num_expected = self.num_ready - len(self.silent)
        return num_expected > 0 and len(self.engines) >= _ENOUGH * num_expected

    @property
    def num_waiting(self) -> int:
        """Interactive requests that wait in gateways."""
        return sum(one.num_waiting for one in self.gateways)

    @property
    def waiting(self) -> str:
        """Those that wait, in words."""
        return "1 request waits" if self.num_waiting == 1 else f"{self.num_waiting} requests wait"

    @property
    def oldest_seconds(self) -> float:
        """Age of the one that waits longest."""
        return max((one.oldest_seconds for one in self.gateways if one.num_waiting), default=0.0)

    @property
    def num_running(self) -> int:
        """Requests in engines."""
        return sum(one.num_running + one.num_waiting for one in self.engines.values())

    def explain(self) -> str:
        """What is missing, in words; empty: nothing."""
        gateways, engines = len(self.gateways), len(self.engines)
        missing = []
        if gateways < self.num_gateways or not gateways:
            missing.append(_missing(self.num_gateways - gateways, self.num_gateways, "gateway"))
        if engines < self.num_ready:
            missing.append(_missing(self.num_ready - engines, self.num_ready, "ready replica"))
        is_one = self.num_gateways - gateways + self.num_ready - engines <= 1
        verb = "was" if is_one else "were"
        return f"{' and '.join(missing)} {verb} not heard lately" if missing else ""


def _missing(num: int, of: int, what: str) -> str:
    return f"{num} of {of} {what}s" if of > 1 else f"the {what}"


LASTING = ("blocks", "seats")
"""Terms of what fills up and stays full: what is taken of it was really asked for."""


@dataclass(frozen=True, kw_only=True)
class FleetPressure:
    """Pressure of all ready replicas together."""

    value: float
    """Mean, weighted by what they can do."""
    binding: str
    """Which term binds most of them."""
    requests_per_second: float
    """What they do by this measure, where one at the target does what was computed of it."""


def hear(
    service: ServiceInputs, unheard_since: Mapping[str, float], inputs: ScalingInputs
) -> Heard:
    """Keep what was heard lately.

    Parameters
    ----------
    unheard_since
        As it was the last time.
    """
    stale_seconds = inputs.stale_seconds
    ready = [one for one in service.replicas if one.is_ready and not one.is_ending]
    gateways = tuple(one for one in service.gateways if _is_fresh(one.age_seconds, stale_seconds))
    engines = {
        one.name: one.engine
        for one in ready
        if one.engine is not None and _is_fresh(one.engine.age_seconds, stale_seconds)
    }
    # without gateways there is nobody who could hear them
    unheard = {
        one.name: unheard_since.get(one.name, inputs.now - _silent_seconds(one, stale_seconds))
        for one in ready
        if one.name not in engines and gateways
    }
    return Heard(
        gateways=gateways,
        num_gateways=max(service.num_gateways, len(service.gateways)),
        engines=engines,
        num_ready=len(ready),
        unheard_since=unheard,
        silent=_write_off(unheard, inputs.now - stale_seconds, len(ready)),
    )


def _silent_seconds(replica: Replica, most: float) -> float:
    """For how long a replica has said nothing, as far as it is known; no more than this counts."""
    age = replica.engine.age_seconds if replica.engine else 0.0
    return min(age, most) if age > 0 else 0.0


def _write_off(unheard: Mapping[str, float], before: float, num_ready: int) -> frozenset[str]:
    """Those that have been silent since before then, the longest first."""
    long = [name for name, since in unheard.items() if since <= before]
    long.sort(key=lambda name: (unheard[name], name))
    return frozenset(long[: math.ceil(_MOST_SILENT * num_ready)])


def measure_pressure(
    service: ServiceInputs, heard: Heard, rates: Mapping[str, float]
) -> FleetPressure | None:
    """Join the pressure of those that are heard; None where too few are.

    Parameters
    ----------
    rates
        Requests per second of one replica at the target, by accelerator; those that are not known
        count like the mean of the others.
    """
    if not heard.is_pressure_known or not heard.engines:
        return None
    ready = [one for one in service.replicas if one.name in heard.engines]
    typical = sum(rates.values()) / len(rates) if rates else 1.0
    weights = [rates.get(one.accelerator, typical) for one in ready]
    pressures = [_bounded(heard.engines[one.name].pressure) for one in ready]
    total = sum(weights) or 1.0
    mean = sum(w * p for w, p in zip(weights, pressures, strict=True)) / total
    binding = _most_common(heard, ready)
    num_counted = max(heard.num_ready - len(heard.silent), len(ready))
    done = mean / service.pressure.target * total * num_counted / len(ready)
    return FleetPressure(value=mean, binding=binding, requests_per_second=done)


def _most_common(heard: Heard, ready: list[Replica]) -> str:
    by_term: dict[str, float] = {}
    for one in ready:
        engine = heard.engines[one.name]
        by_term[engine.binding] = by_term.get(engine.binding, 0.0) + _bounded(engine.pressure)
    return max(sorted(by_term), key=lambda name: by_term[name])


def _bounded(pressure: float) -> float:
    return min(max(pressure, 0.0), _MOST_PRESSURE)


def _is_fresh(age_seconds: float, stale_seconds: float) -> bool:
    return 0 <= age_seconds <= stale_seconds
