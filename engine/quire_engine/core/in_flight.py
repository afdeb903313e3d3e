"""The steps that an executor has and that are not taken in yet.

    one by one      plan k │ compute k │ take in k │ plan k + 1 │ compute k + 1 │ ...
    overlapped      compute k                      │ compute k + 1        │ ...
                       plan and submit k + 1       │ take in k, plan and submit k + 2 │ ...

An `AheadExecutor` may have two, the second of them planned without the first one's tokens. All
others have one, whose tokens are there when it was begun.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from quire_engine.core.isolation import StepOutcome, isolate, judge, run_isolated
from quire_engine.errors import EngineDeadError
from quire_engine.execution.base import AheadExecutor, Executor
from quire_engine.scheduler.lookahead import needs_tokens
from quire_engine.scheduler.plan import Plan

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EndedStep:
    """What came of a step, and how long it took."""

    plan: Plan
    outcome: StepOutcome
    run_seconds: float
    """Of the executor alone, by its own clock where it has one: since it had the step, or since it
    ended the one before."""
    step_seconds: float | None
    """The same with planning, by the clock that steps are planned by; None without that clock."""
    ended_at: float | None
    """By that clock."""


@dataclass(slots=True)
class _Flight:
    plan: Plan
    planned_at: float
    begun_at: float
    outcome: StepOutcome | None = None
    """None while it is computed."""
    error: Exception | None = None
    """Why it was not taken at all."""
    ended: EndedStep | None = None


class StepsInFlight:
    """Gives steps to an executor, at most two at a time, and takes what came of each.

    Parameters
    ----------
    overlaps
        Whether two may be in flight, where the executor can have two.
    clock
        Measures the executor, in seconds.
    step_clock
        The clock that steps are planned by; None if nobody reads it.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        overlaps: bool,
        clock: Callable[[], float] | None,
        step_clock: Callable[[], float] | None,
    ) -> None:
        self.overlaps = overlaps
        self._executor = executor
        self._ahead = executor if isinstance(executor, AheadExecutor) else None
        self._clock = clock or (lambda: 0.0)
        self._step_clock = step_clock
        self._flights: deque[_Flight] = deque()
        self._collected_at = self._ended_at = float("-inf")

    def __len__(self) -> int:
        return len(self._flights)

    @property
    def computing(self) -> Plan | None:
        """The step beside which another may be begun, if there is one."""
        if len(self._flights) != 1:
            return None
        (flight,) = self._flights
        return None if flight.outcome or flight.error else flight.plan

    def begin(self, plan: Plan, planned_at: float) -> None:
        """Give the executor a step; without overlap it is computed here and now.

        Raises
        ------
        EngineDeadError
            Nothing can be computed any more.
        """
        if self._flights and needs_tokens(plan):
            # the executor waits for what it is given now: the step before must not seem that long
            self._complete(self._flights[0], has_next=True)
        flight = _Flight(plan, planned_at, self._clock())
        if self._ahead is None or not self.overlaps:
            flight.outcome = run_isolated(self._executor, plan.batch)
        else:
            try:
                self._ahead.submit(plan.batch)
            except Exception as error:  # noqa: BLE001 - looked at once the step before it has ended
                flight.error = error
        self._flights.append(flight)

    def end(self) -> EndedStep:
        """Wait for the oldest step.

        Raises
        ------
        EngineDeadError
            Nothing can be computed any more.
        """
        flight = self._flights.popleft()
        has_next = any(behind.error is None for behind in self._flights)
        return flight.ended or self._complete(flight, has_next=has_next)

    def _complete(self, flight: _Flight, *, has_next: bool) -> EndedStep:
        """Wait for a step whose end nobody has noted yet.

        Parameters
        ----------
        has_next
            Whether another is planned, and not known to have failed.
        """
        outcome = flight.outcome or self._find_outcome(flight, has_next=has_next)
        collected_at = self._clock()
        run_seconds = outcome.result.seconds if outcome.is_whole else None
        if run_seconds is None:
            run_seconds = collected_at - max(flight.begun_at, self._collected_at)
        ended_at = self._step_clock() if self._step_clock else None
        ended = flight.ended = EndedStep(
            flight.plan,
            outcome,
            run_seconds,
            None if ended_at is None else ended_at - max(flight.planned_at, self._ended_at),
            ended_at,
        )
        self._collected_at = collected_at
        if ended_at is not None:
            self._ended_at = ended_at
        return ended

    def _find_outcome(self, flight: _Flight, *, has_next: bool) -> StepOutcome:
        error, batch = flight.error, flight.plan.batch
        if error is None and self._ahead is not None:
            try:
                return judge(batch, self._ahead.collect())
            except Exception as failure:
                if has_next:
                    _log.exception("a step failed, and the one behind it with it")
                    raise EngineDeadError("the executor lost two steps") from failure
                error = failure
        return isolate(self._executor, batch, error or RuntimeError("bug: a step was not begun"))
