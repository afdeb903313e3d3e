"""What a plan is to know of scaling: how many replicas now, and what is said of it.

Words that go into conditions are the same as long as the same is so: figures are in the decision
that status keeps, and in metrics.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from quire_operator.scaling.decision import FindingCode, ServiceDecision

_SAID: dict[FindingCode, str] = {
    "DecisionFailed": "scaling failed for this service: its replicas stay as they are; the log of"
    " what scales it says why, and that should be reported as a bug",
    "SloImpossible": "no accelerator keeps scaling.slo for all of this traffic: the best there is"
    " runs, and requests that would be late are refused; loosen it, or add a faster accelerator",
    "Infeasible": "the bounds allow fewer replicas than the traffic, or minReplicas, ask for: the"
    " best within them runs; raise maxReplicas or maxCostPerHour, or bring more GPUs",
    "ShortOfGpus": "an accelerator found no node in time: others stand in for it",
    "ReplicasFail": "all replicas of an accelerator fail: others serve in its place",
    "CapacityUnknown": "nothing is known of what a replica can do until one has run",
    "ProfilesDiffer": "replicas on one accelerator measured themselves very differently",
    "PriceUnknown": "an accelerator has no costPerHour: the dearest one is assumed",
}
"""The most important first."""
_SAYS_WHEN = ("ReplicasFail", "ShortOfGpus")
"""Of these the finding's own words are told: they name the next try, and are the same until then.
"""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One service's."""

    replicas: Mapping[str, int]
    """To be asked for, by accelerator."""
    leaving: Mapping[str, int] = field(default_factory=dict)
    """The same of accelerators that the spec has no more."""
    traffic_shares: Mapping[str, float] = field(default_factory=dict)
    short_since: Mapping[str, float] = field(default_factory=dict)
    """Seconds since the epoch."""
    code: str = "Active"
    """Why, in one word."""
    words: str = ""
    """The same in a sentence."""
    unheard: str = ""
    """What was not heard; empty: everything was."""
    tokens_per_second: Mapping[str, int] = field(default_factory=dict)
    """Of one replica at the target, in two digits."""


def outcome_of(decision: ServiceDecision) -> Outcome:
    """Keep of a decision what plans are made of."""
    codes = {one.code for one in decision.findings}
    code = next((one for one in _SAID if one in codes), None)
    words = _SAID[code] if code else "replicas follow the traffic; lastScalingDecision says why"
    if code in _SAYS_WHEN:
        words = "; ".join(one.message for one in decision.findings if one.code == code)
    unheard = [
        one.message for one in decision.findings if one.code in ("NoMetrics", "MetricsStale")
    ]
    rates = {
        name: _two_digits(one.tokens_per_second)
        for name, one in decision.accelerators.items()
        if one.tokens_per_second is not None
    }
    return Outcome(
        replicas=decision.replicas,
        leaving=decision.leaving,
        traffic_shares=decision.traffic_shares,
        short_since=decision.short_since,
        code=code or "Active",
        words=words,
        unheard="; ".join(unheard),
        tokens_per_second=rates,
    )


def _two_digits(value: float) -> int:
    return int(float(f"{value:.2g}"))
