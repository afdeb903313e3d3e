"""Scalers that never change anything."""

from collections.abc import Mapping

from quire_local.simulate.observing import Observation, Scaled, Scaler


class FixedScaler(Scaler):
    """So many replicas of each type, always."""

    period_seconds = 3600.0
    is_prophet = False
    has_deadlines = True

    def __init__(self, replicas: Mapping[str, int], name: str = "fixed") -> None:
        self.name = name
        self._replicas = replicas

    def begin(self) -> Mapping[str, int]:
        """See `Scaler`."""
        return self._replicas

    def decide(self, seen: Observation) -> Scaled:  # noqa: ARG002 - whatever it sees
        """See `Scaler`."""
        return Scaled(replicas=self._replicas)
