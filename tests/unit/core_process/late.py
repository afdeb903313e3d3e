"""Executors whose tokens come late, as a GPU's do."""

from collections import deque

from quire_engine.execution.base import AheadExecutor, Batch, Executor, Progress, StepResult
from quire_engine.execution.clocks import VirtualClock
from quire_engine.protocol.messages import ModelFacts


class LateExecutor(AheadExecutor):
    """Computes at once, and tells nobody before it is asked.

    Parameters
    ----------
    inner
        Loaded, its cache allocated.
    """

    def __init__(self, inner: Executor) -> None:
        self.inner = inner
        self.in_flight: deque[StepResult | Exception] = deque()
        self.num_ahead = 0
        """Steps that came before the tokens of the one before them were asked for."""
        self.fails_late = False
        """Whether failures show when a step is collected, in place of when it comes."""

    def load(self, progress: Progress) -> None:
        raise NotImplementedError

    def allocate_cache(self) -> ModelFacts:
        raise NotImplementedError

    def submit(self, batch: Batch) -> None:
        assert len(self.in_flight) < 2
        assert all(min(started.token_ids) >= 0 for started in batch.started)
        try:
            result: StepResult | Exception = self.inner.run(batch)
        except Exception as error:
            if not self.fails_late:
                raise
            result = error
        self.num_ahead += len(self.in_flight)
        self.in_flight.append(result)

    def collect(self) -> StepResult:
        result = self.in_flight.popleft()
        if isinstance(result, Exception):
            raise result
        return result

    def probe(self) -> None:
        self.inner.probe()

    def close(self) -> None:
        self.inner.close()


class TimedExecutor(LateExecutor):
    """Takes a second of a virtual clock for each step, one after the other.

    A step with a row of `special` is over when it has been taken, as those are whose rules look at
    tokens.
    """

    def __init__(self, inner: Executor, clock: VirtualClock) -> None:
        super().__init__(inner)
        self._clock = clock
        self._done_at: deque[float] = deque()
        self._latest = 0.0
        self.special: set[int] = set()
        self.own_seconds: float | None = None
        """What it says that each step took; None: it does not tell."""

    def submit(self, batch: Batch) -> None:
        super().submit(batch)
        self._latest = max(self._latest, self._clock.now()) + 1.0
        self._done_at.append(self._latest)
        self.special |= {s.row for s in batch.started if s.sampling.needs_host}
        if not self.special.isdisjoint(batch.chunks.rows):
            self._clock.sleep_until(self._latest)

    def collect(self) -> StepResult:
        self._clock.sleep_until(self._done_at.popleft())
        result = super().collect()
        result.seconds = self.own_seconds
        return result
