"""Which of a gateway's requests are here but not with the core yet.

A request that came later can overtake one whose long prompt is being tokenized, also at another
API worker. The state must not say that both are counted before they are.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from quire_engine.server.count_board import NUM_ARRIVALS, CountBoard


class GatewayArrivals:
    """Requests between their arrival and the core; belongs to one event loop.

    Parameters
    ----------
    board
        Where other workers see the lowest counter of each gateway. Beyond `NUM_ARRIVALS` gateways
        at once they don't: the core remembers no more of them anyway.
    """

    def __init__(self, board: CountBoard) -> None:
        self._board = board
        self._pending: dict[str, Counter[int]] = {}
        self._places: dict[str, int] = {}
        self._free_places = list(range(NUM_ARRIVALS))

    @contextmanager
    def until_sent(self, gateway: str, counter: int) -> Iterator[None]:
        """Count a request as pending; when the block fails, it is answered and not pending."""
        if gateway:
            self._pending.setdefault(gateway, Counter())[counter] += 1
            self._publish(gateway)
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
        self._publish(gateway)

    def included(self, highest: dict[str, int]) -> dict[str, int]:
        """The core's highest counters, lowered to below whatever is still pending."""
        if not self._pending and not self._board.is_shared:
            return highest
        others = self._lowest_of_others()
        included = {}
        for gateway, counter in highest.items():
            pending = [*self._pending.get(gateway, ()), *others.get(_number(gateway), ())]
            included[gateway] = min(counter, min(pending) - 1) if pending else counter
        return included

    def _publish(self, gateway: str) -> None:
        """Let other workers know: the counter first, then whose it is."""
        if not self._board.is_shared:
            return
        pending, place = self._pending.get(gateway), self._places.get(gateway)
        cells = self._board.own_arrivals
        if pending is None:
            if place is not None:
                cells[2 * place] = 0.0
                self._free_places.append(self._places.pop(gateway))
            return
        if place is None:
            if not self._free_places:
                return
            place = self._places[gateway] = self._free_places.pop()
        cells[2 * place + 1] = float(min(pending))
        cells[2 * place] = _number(gateway)

    def _lowest_of_others(self) -> dict[float, list[int]]:
        """The lowest pending counters that other workers have, by the gateway's number."""
        lowest: dict[float, list[int]] = {}
        for cells in self._board.others_arrivals():
            for index in range(0, len(cells), 2):
                if cells[index]:
                    lowest.setdefault(cells[index], []).append(int(cells[index + 1]))
        return lowest


def _number(gateway: str) -> float:
    """A number for a name, above 0 and exact as a float64."""
    return float(1 + int.from_bytes(hashlib.blake2b(gateway.encode(), digest_size=6).digest()))
