"""How long answers run on: one estimate from what all engines of a service have seen."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from math import inf

from quire_engine.errors import ConfigError
from quire_gateway.choosing.demand import Expectations, merge_lengths
from quire_gateway.choosing.endpoint import Endpoint
from quire_gateway.serving.last_known import LastEngines

LENGTHS_SECONDS = 5.0
"""How often the estimate is made anew."""


class Lengths:
    """The estimate.

    Parameters
    ----------
    clock
        Seconds of the event loop.
    last
        Asked where there is no engine.
    """

    def __init__(self, clock: Callable[[], float], last: LastEngines) -> None:
        self._clock = clock
        self._last = last
        self._survival = Expectations(merge_lengths([]))
        self._made_at = -inf

    def survival(self, endpoints: Iterable[Endpoint]) -> Expectations:
        """Return it, as of the last few seconds."""
        now = self._clock()
        if now - self._made_at >= LENGTHS_SECONDS:
            self._made_at = now
            states = [one.state.output_lengths for one in endpoints if one.state]
            if not states and (last := self._last.known) is not None:
                states = [last.output_lengths]
            # where an engine says impossible things of lengths, the last estimate stays
            with suppress(ConfigError):
                self._survival = Expectations(merge_lengths(states))
        return self._survival
