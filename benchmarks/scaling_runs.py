"""Figures of one scaler with one traffic, model and promise."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ScalingRun:
    """Seconds are virtual, but for the processor's."""

    case: str
    scaler: str
    label: str
    """As the scaler calls itself, with the type that it scales."""
    num_requests: int
    seconds: float
    dollars: float
    lower_bound_dollars: float
    """Of the cheapest mix of each 5 minutes, computed and not simulated."""
    attainment: float
    first_token_seconds: float | None
    """95th percentile; None: so many got none."""
    per_token_seconds: float | None
    num_refused: int
    num_lost: int
    num_lost_to_drain: int
    num_preemptions: int
    changes_per_hour: float
    replica_hours: Mapping[str, float]
    cpu_seconds: float
