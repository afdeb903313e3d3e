"""One service with all that is known and computed of it, for the rules that decide."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from quire_operator.scaling.clamping import Limits
from quire_operator.scaling.decision import Action, Finding, ServiceMemory
from quire_operator.scaling.demand import Demand
from quire_operator.scaling.fleet import Fleet
from quire_operator.scaling.hearing import FleetPressure, Heard
from quire_operator.scaling.inputs import ServiceInputs
from quire_operator.scaling.offers import Offers
from quire_operator.scaling.sizing import Sizing
from quire_operator.scaling.urgency import Urgency


@dataclass(frozen=True, kw_only=True)
class Step:
    """What is to be done now."""

    action: Action
    replicas: Mapping[str, int]
    reason: str
    wanted: Mapping[str, int] | None = None
    """None: the same."""
    victims: tuple[str, ...] | None = None
    """None: those that are worth least."""
    is_rising: bool = False
    """Whether more is wanted, and not added yet: `stabilization.up` has not passed."""
    is_stuck: bool = False
    """Whether more is needed, and nothing may be added that helps."""
    is_better_known: bool = False
    """Whether other replicas would serve the same for less."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """See the modules of the fields' types."""

    service: ServiceInputs
    now: float
    memory: ServiceMemory
    heard: Heard
    fleet: Fleet
    limits: Limits
    offers: Offers
    demand: Demand | None
    pressure: FleetPressure | None
    urgency: Urgency
    sizing: Sizing
    rates_now: list[float]
    """Planned for, by bucket."""
    rates_at_peak: list[float]
    findings: list[Finding] = field(default_factory=list)
    """What rules find is added."""

    @cached_property
    def load_now(self) -> float:
        """Load of what serves and will serve; 1 is the target."""
        return self.sizing.load(self.fleet.useful, self.rates_now)

    @cached_property
    def rates_relied_on(self) -> list[float]:
        """What replicas carry at the target that were counted on when gateways were heard.

        Empty: nothing was ever heard.
        """
        alike = [1.0] * len(self.offers.mix)
        load = self.sizing.load(self.memory.relied_on, alike) if self.memory.relied_on else 0.0
        return [rate / load for rate in alike] if 0 < load < math.inf else []

    @property
    def is_at_zero(self) -> bool:
        """Whether nothing runs, and nothing is on its way."""
        return self.fleet.num_ordered == 0

    @property
    def is_asked(self) -> bool:
        """Whether somebody waits, or asked just now."""
        return bool(self.heard.num_waiting) or self.memory.last_request_at >= self.now

    @property
    def rising_seconds(self) -> float:
        """How long more has been wanted."""
        since = self.memory.rising_since
        return 0.0 if since is None else max(self.now - since, 0.0)

    @property
    def better_seconds(self) -> float:
        """How long other replicas would have served the same for less."""
        since = self.memory.better_since
        return 0.0 if since is None else max(self.now - since, 0.0)

    @property
    def has_added_lately(self) -> bool:
        """Whether replicas were asked for within the stabilization window."""
        at = self.memory.added_at
        return at is not None and self.now - at < self.service.down_seconds

    def hold(self, reason: str) -> Step:
        """Change nothing."""
        return Step(action="Hold", replicas=dict(self.fleet.ordered), reason=reason)

    def why_not_down(self) -> str:
        """Why nothing may be taken away; empty: it may. "unknown": there is nothing to say."""
        if self.demand is None or not self.offers.are_known:
            return "unknown"
        if not self.heard.is_all:
            return f"nothing is taken away: {self.heard.explain()}"
        if self.service.is_rolling_out:
            return "nothing is taken away while replicas are being replaced"
        if self.urgency.is_urgent:
            return f"nothing is taken away: {self.urgency.reason}"
        caution = self.memory.caution
        seconds = caution.windows * self.service.down_seconds
        if caution.windows > 1.0 and self.now - caution.changed_at < seconds:
            return (
                f"nothing is taken away for {seconds:g} s: what was taken away before was needed"
                " again soon after, and promises were broken"
            )
        if self.heard.num_waiting:
            return f"nothing is taken away while {self.heard.waiting}"
        watched = self.now - self.memory.since
        if watched < self.service.down_seconds:
            return (
                f"nothing is taken away before traffic has been watched for"
                f" {self.service.down_seconds:g} s"
            )
        return ""

    def has_useless(self, wanted: Mapping[str, int]) -> bool:
        """Whether something that is not wanted is of no use: it fails, or finds no node."""
        fleet = self.fleet
        return any(
            count > wanted[name] and count > fleet.useful[name]
            for name, count in fleet.ordered.items()
        )

    def note_infeasible(self, unserved: float, *, at_peak: bool = False) -> None:
        """Say that bounds leave too little."""
        when = "at the peak of the stabilization window " if at_peak else ""
        self.findings.append(
            Finding(
                code="Infeasible",
                message=f"{when}{100 * unserved:.0f} % of the load is more than the bounds"
                " (maxReplicas,"
                " maxCostPerHour, the accelerators' own, the GPUs that there are) let be carried at"
                " the target: the best within them runs",
            )
        )
