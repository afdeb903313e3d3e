"""Who knows the trace: the best mix of each window, there at once; and one for all time."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from quire_local.simulate.observing import Observation, Scaled, Scaler
from quire_local.simulate.sizing import SizedWindow


class OracleScaler(Scaler):
    """The cheapest mix of each window, at its beginning."""

    name = "oracle"
    period_seconds = 5.0
    is_prophet = True
    has_deadlines = True

    def __init__(self, windows: Sequence[SizedWindow]) -> None:
        self._windows = windows
        self._begins = [one.at for one in windows]

    def begin(self) -> Mapping[str, int]:
        """See `Scaler`."""
        return self._windows[0].replicas

    def decide(self, seen: Observation) -> Scaled:
        """See `Scaler`."""
        window = self._windows[bisect_right(self._begins, seen.now) - 1]
        reason = f"{window.requests_per_second:.1f} requests/s will come in the next minutes"
        return Scaled(replicas=window.replicas, reason=reason)
