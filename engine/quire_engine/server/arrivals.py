"""Which of a gateway's requests are here but not with the core yet.

A request that came later can overtake one whose long prompt is being tokenized. The state must not
say that both are counted before they are.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class GatewayArrivals:
    """Requests between their arrival and the core; belongs to one event loop."""

    def __init__(self) -> None:
        self._pending: dict[str, Counter[int]] = {}

    @contextmanager
    def until_sent(self, gateway: str, counter: int) -> Iterator[None]:
        """Count a request as pending; when the block fails, it is answered and not pending."""
        if gateway:
            self._pending.setdefault(gateway, Counter())[counter] += 1
        try:
            yield
        except BaseException:
            self.settle(gateway, counter)
            raise

    def settle(self, gateway: str, counter: int) -> None:
        """The core has the request, or it will never get it."""
        pending = self._pending.get(gateway)
        if pending is None:
            return
        pending[counter] -= 1
        if pending[counter] <= 0:
            del pending[counter]
        if not pending:
            del self._pending[gateway]

    def included(self, highest: dict[str, int]) -> dict[str, int]:
        """The core's highest counters, lowered to below whatever is still pending."""
        return {
            gateway: min(counter, min(self._pending[gateway]) - 1)
            if gateway in self._pending
            else counter
            for gateway, counter in highest.items()
        }
