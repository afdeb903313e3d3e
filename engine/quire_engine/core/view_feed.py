"""Sends views of the core to the API servers that watch; nothing is computed for nobody."""

from collections.abc import Callable

from quire_engine.protocol.messages import CoreView

INTERVAL_SECONDS = 0.25
"""Views follow each other no faster while something changes."""
HEARTBEAT_SECONDS = 1.0
"""And no slower, for waiting times pass though nothing else does."""
MAX_SHARE = 0.02
"""Share of the core's time that views may take: with very many blocks they come less often."""


class ViewFeed:
    """When views are due, and for whom; belongs to the step loop's thread.

    Parameters
    ----------
    describe
        Makes the view as of a moment; the feed adds what it measured.
    send
        Sends a view to one API server.
    clock
        In seconds.
    """

    def __init__(
        self,
        describe: Callable[[float], CoreView],
        send: Callable[[str, CoreView], None],
        clock: Callable[[], float],
    ) -> None:
        self._describe = describe
        self._send = send
        self._clock = clock
        self._watchers: set[str] = set()
        self._earliest_at = 0.0
        self._latest_at = 0.0
        self._is_changed = True
        self._busy_seconds = 0.0
        self._num_steps = 0

    def watch(self, client_id: str, *, is_on: bool) -> None:
        """Begin or end to send views to an API server."""
        if not is_on:
            self._watchers.discard(client_id)
            return
        self._watchers.add(client_id)
        self._earliest_at = self._latest_at = 0.0

    def count_step(self, started_at: float) -> None:
        """Note that a step has ended that began then."""
        if self._watchers:
            self._busy_seconds += self._clock() - started_at
            self._num_steps += 1
            self._is_changed = True

    def mark_changed(self) -> None:
        """Note that something other than a step changed the core."""
        self._is_changed = True

    def seconds_left(self, now: float) -> float:
        """How long until a view is due; infinite while nobody watches."""
        if not self._watchers:
            return float("inf")
        return max(0.0, (self._earliest_at if self._is_changed else self._latest_at) - now)

    def send_if_due(self) -> None:
        """Send every API server that watches a view, if it is time to."""
        if not self._watchers:
            return
        now = self._clock()
        if self.seconds_left(now) > 0.0:
            return
        view = self._describe(now)
        view.busy_seconds, view.num_steps = self._busy_seconds, self._num_steps
        for client_id in self._watchers:
            self._send(client_id, view)
        cost_seconds = self._clock() - now
        self._earliest_at = now + max(INTERVAL_SECONDS, cost_seconds / MAX_SHARE)
        self._latest_at = now + max(HEARTBEAT_SECONDS, cost_seconds / MAX_SHARE)
        self._is_changed = False
