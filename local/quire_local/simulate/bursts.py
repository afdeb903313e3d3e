"""Bursts that the mean of a window hides."""

from bisect import bisect_right
from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

from quire_engine.profiles.traces import TraceRequest
from quire_local.simulate.sizing import SizedWindow

BURST_SECONDS = 15.0
"""Shorter than any replica takes to start."""
_FAR = 3.0
"""Times the mean of its window: less is no burst."""
_CHANCE = 6.0
"""Deviations above that mean: fewer happen by chance, where requests come independently."""
_SHORTEST = 4 * BURST_SECONDS
"""Windows that are shorter have no mean to speak of."""


class Burst(NamedTuple):
    """Requests that came within `BURST_SECONDS`."""

    at: float
    """When the first of them came; seconds."""
    num_requests: int
    usual: float
    """So many come in as long a time, by the mean of the window."""


def find_burst(trace: Sequence[TraceRequest], windows: Sequence[SizedWindow]) -> Burst | None:
    """The burst furthest above its window's mean; None where none is far above."""
    starts = [one.at for one in windows]
    found: Burst | None = None
    first = 0
    for last, request in enumerate(trace):
        while request.arrival_seconds - trace[first].arrival_seconds >= BURST_SECONDS:
            first += 1
        window = windows[max(bisect_right(starts, trace[first].arrival_seconds) - 1, 0)]
        usual, num = window.requests_per_second * BURST_SECONDS, last - first + 1
        is_far = num >= _FAR * usual and num >= usual + _CHANCE * sqrt(usual + 1.0)
        if window.seconds < _SHORTEST or not is_far:
            continue
        if found is None or num - usual > found.num_requests - found.usual:
            found = Burst(trace[first].arrival_seconds, num, usual)
    return found
