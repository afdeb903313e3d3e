"""What happens when a step fails: an executor that asks what to do about it.

    retry      compute the same batch again: a contract of executors is that this is safe
    skip       the requests that make the step fail end with an error; all others go on
    reset      all requests end with an error; the engine begins anew with an empty cache
    shutdown   all requests end with an error, and no more are taken

Retrying is done here, skipping by whoever runs the batch (`core.isolation`); of the last two this
only keeps what was decided, for whoever owns the engine.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from quire_engine.execution.base import Batch, Executor, Progress, StepResult
from quire_engine.protocol.messages import ModelFacts

_log = logging.getLogger(__name__)


class RecoveryAction(StrEnum):
    """What to do after a step that failed; see the module's text."""

    RETRY = "retry"
    SKIP = "skip"
    RESET = "reset"
    SHUTDOWN = "shutdown"


class StepAbandonedError(Exception):
    """A step failed, and who caused it is not to be looked for; its cause is the failure."""


@dataclass(frozen=True, kw_only=True)
class StepFailure:
    """A step that failed."""

    error: Exception
    num_attempts: int
    """How often the batch was tried, at least once."""


Recovery = Callable[[StepFailure], RecoveryAction]
"""Decides what to do about a failure."""


def retry_then(action: RecoveryAction, *, max_retry_attempts: int) -> Recovery:
    """Retry so often, and then take `action`."""

    def decide(failure: StepFailure) -> RecoveryAction:
        if failure.num_attempts <= max_retry_attempts:
            return RecoveryAction.RETRY
        return action

    return decide


class RecoveringExecutor(Executor):
    """Runs another executor's batches, and again when its failures are to be retried."""

    def __init__(self, inner: Executor, decide: Recovery) -> None:
        self._inner = inner
        self._decide = decide
        self.step_time = inner.step_time
        self.decision: RecoveryAction | None = None
        """Reset or shutdown, once it was decided."""

    def load(self, progress: Progress) -> None:
        """Load the inner executor."""
        self._inner.load(progress)

    def allocate_cache(self) -> ModelFacts:
        """Allocate the inner executor's cache."""
        facts = self._inner.allocate_cache()
        self.step_time = self._inner.step_time
        self.padded_tokens = self._inner.padded_tokens
        return facts

    def run(self, batch: Batch) -> StepResult:
        """Compute one batch, as often as is decided; the last failure is raised."""
        num_attempts = 0
        while True:
            try:
                return self._inner.run(batch)
            except Exception as error:
                num_attempts += 1
                action = self._decide(StepFailure(error=error, num_attempts=num_attempts))
                if action is RecoveryAction.SKIP:
                    raise
                if action is not RecoveryAction.RETRY:
                    self.decision = action
                    raise StepAbandonedError from error
                _log.warning("a step failed and is tried again: %s", type(error).__name__)

    def describe(self) -> str:
        """Describe the inner executor."""
        return self._inner.describe()

    def probe(self) -> None:
        """Probe the inner executor."""
        self._inner.probe()

    def count_graphs(self) -> tuple[int, int]:
        """Return the inner executor's counts."""
        return self._inner.count_graphs()

    def close(self) -> None:
        """Close the inner executor."""
        self._inner.close()


def with_retries(executor: Executor, max_retry_attempts: int) -> Executor:
    """The executor, with failed steps computed again so often before their requests end."""
    if not max_retry_attempts:
        return executor
    decide = retry_then(RecoveryAction.SKIP, max_retry_attempts=max_retry_attempts)
    return RecoveringExecutor(executor, decide)
