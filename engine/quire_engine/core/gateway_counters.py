"""Which of a gateway's requests the statistics already include.

A gateway adds what it sent itself to what the engine reports; the counter tells it which of its
requests it must no longer add.
"""

from collections import OrderedDict

MAX_GATEWAYS = 64
"""So many are remembered; the one that was silent longest is forgotten first."""


class GatewayCounters:
    """The highest counter of each gateway, of requests that were let in or refused."""

    def __init__(self) -> None:
        self._highest: OrderedDict[str, int] = OrderedDict()

    def note(self, gateway: str, counter: int) -> None:
        """Count a request of a gateway; the empty name is none."""
        if not gateway:
            return
        self._highest[gateway] = max(counter, self._highest.get(gateway, 0))
        self._highest.move_to_end(gateway)
        if len(self._highest) > MAX_GATEWAYS:
            self._highest.popitem(last=False)

    def to_dict(self) -> dict[str, int]:
        """The highest counters by gateway."""
        return dict(self._highest)
