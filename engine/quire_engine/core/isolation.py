"""Finds the request that makes a step fail, so that it fails alone.

    run [a b c d e f]  fails
    run [a b c]        is right: three requests have their tokens
    run       [d e f]  fails
    run       [d]      is right
    run         [e f]  fails
    run         [e]    fails: e is the culprit, and ends with its own error
    run           [f]  is right

A row's tokens do not depend on what else is in the batch, so the others get what they would have
got. A step of n requests with k culprits takes about 2k log2(n) runs. When not a single request
comes through, the executor is asked whether it can still compute; if not, this process is of no
use any more.

Rows whose logits are no numbers need no search: the executor names them.
"""

import logging
from dataclasses import dataclass, field

from quire_engine.errors import EngineDeadError
from quire_engine.execution.base import Batch, Executor, PooledStates, StepResult
from quire_engine.execution.parts import take_part
from quire_engine.execution.recovering import StepAbandonedError
from quire_engine.protocol.sampling import TokenLogprobs

_log = logging.getLogger(__name__)

NOT_FINITE = (
    "the model's output for this request is not finite (NaN or infinity), so that no token can be"
    " chosen"
)


@dataclass(slots=True)
class StepOutcome:
    """What came of a step, whoever failed in it."""

    result: StepResult
    """Of the whole batch; the tokens of chunks with an error mean nothing."""
    errors: dict[int, str] = field(default_factory=dict)
    """Why a chunk's request failed, by the chunk's index."""
    is_whole: bool = True
    """Whether it was computed in one run."""
    unended_rows: list[int] = field(default_factory=list)
    """Rows of `Batch.ended` that the executor was not told of."""
    unstarted_rows: set[int] = field(default_factory=set)
    """Rows of `Batch.started` that the executor never started."""


def run_isolated(executor: Executor, batch: Batch) -> StepOutcome:
    """Compute a batch; requests that cannot be computed fail, and no others.

    Raises
    ------
    EngineDeadError
        Nothing can be computed any more.
    """
    try:
        result = executor.run(batch)
    except Exception as error:  # noqa: BLE001 - whatever it is, somebody's request must end with it
        return isolate(executor, batch, error)
    return judge(batch, result)


def isolate(executor: Executor, batch: Batch, error: Exception) -> StepOutcome:
    """Compute what can be computed of a batch that failed as a whole; nothing else is in flight.

    Raises
    ------
    EngineDeadError
        Nothing can be computed any more.
    """
    _log.error("a step over %d requests failed", len(batch.chunks), exc_info=error)
    return _Search(executor, batch).find_culprits(error)


def judge(batch: Batch, result: StepResult) -> StepOutcome:
    """Say who failed in a step that was computed: the rows that the executor named."""
    errors = dict.fromkeys(_find_not_finite(batch, result), NOT_FINITE) if result.not_finite else {}
    return StepOutcome(result, errors)


class _Search:
    """The runs after one that failed."""

    def __init__(self, executor: Executor, batch: Batch) -> None:
        self._executor = executor
        self._batch = batch
        self._ended = list(batch.ended)
        self._tokens: dict[int, list[int]] = {}
        """One token of each step, by index of a chunk that was computed; none if none is due."""
        self._logprobs: dict[int, TokenLogprobs | None] = {}
        self._prompt_logprobs: dict[int, list[TokenLogprobs]] = {}
        self._pooled: dict[int, PooledStates] = {}
        self._errors: dict[int, str] = {}

    def find_culprits(self, error: Exception) -> StepOutcome:
        """Compute what can be computed."""
        chunks = self._batch.chunks
        self._divide(error, 0, len(chunks))
        if not self._tokens:
            self._probe(error)
        sampling = [index for index, samples in enumerate(chunks.samples) if samples]
        steps = range(self._batch.num_steps)
        token_ids = [
            self._tokens[index][step] if index in self._tokens else 0
            for step in steps
            for index in sampling
        ]
        lost_rows = {row for index, row in enumerate(chunks.rows) if index not in self._tokens}
        return StepOutcome(
            StepResult(
                token_ids,
                [self._logprobs.get(index) for index in sampling] if self._logprobs else None,
                self._prompt_logprobs or None,
                pooled=self._pooled or None,
            ),
            self._errors,
            is_whole=False,
            unended_rows=self._ended,
            unstarted_rows=lost_rows.intersection(s.row for s in self._batch.started),
        )

    def _divide(self, error: Exception, first: int, last: int) -> None:
        """Chunks `first` to `last` failed together: blame the only one, or look at each half."""
        if last - first > 1 and not isinstance(error, StepAbandonedError):
            middle = (first + last) // 2
            self._run(first, middle)
            self._run(middle, last)
            return
        culprit = error.__cause__ if isinstance(error, StepAbandonedError) else error
        message = f"the engine failed on this request: {type(culprit).__name__}"
        self._errors.update(dict.fromkeys(range(first, last), message))

    def _run(self, first: int, last: int) -> None:
        part = take_part(self._batch, first, last, ended=self._ended)
        try:
            result = self._executor.run(part)
        except Exception as error:  # noqa: BLE001 - whatever it is, its request must end with it
            self._divide(error, first, last)
            return
        self._ended = []
        self._tokens.update((index, []) for index in range(first, last))
        sampling = [first + index for index, samples in enumerate(part.chunks.samples) if samples]
        for place, index in enumerate(sampling):
            self._tokens[index] = result.token_ids[place :: len(sampling)]
        self._logprobs.update(zip(sampling, result.logprobs or (), strict=False))
        self._prompt_logprobs.update(result.prompt_logprobs or {})
        self._pooled.update(result.pooled or {})
        for index in _find_not_finite(part, result):
            self._errors[first + index] = NOT_FINITE

    def _probe(self, error: Exception) -> None:
        """Not one request came through: end the core if none ever will."""
        try:
            self._executor.probe()
        except Exception as lost:
            _log.exception("the executor computes nothing any more")
            raise EngineDeadError("the executor computes nothing any more") from lost
        _log.error("no request of this step could be computed: %s", type(error).__name__)


def _find_not_finite(batch: Batch, result: StepResult) -> set[int]:
    """Return the indices of the chunks whose logits were not finite, in any step."""
    sampling = [index for index, samples in enumerate(batch.chunks.samples) if samples]
    return {sampling[index % len(sampling)] for index in result.not_finite}
