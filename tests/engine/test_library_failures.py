"""The engine as a library: steps that fail, what is done then, and requests whose time is up."""

import pytest

from quire_engine import Engine, RecoveryAction
from quire_engine.config import EngineConfig
from quire_engine.errors import EngineDeadError, RequestError
from quire_engine.execution.base import Batch, StepResult
from quire_engine.execution.simulated import SimulatedExecutor
from quire_engine.library import Recovery, StepFailure, retry_then
from tests.engine.small_engines import configure, of_tokens


class FailingExecutor(SimulatedExecutor):
    """Fails in so many steps from `fails_at` on, counted from 1."""

    def __init__(self, config: EngineConfig, *, fails_at: int, times: int) -> None:
        super().__init__(config)
        self.num_runs = 0
        self.is_closed = False
        self._failing = range(fails_at, fails_at + times)

    def run(self, batch: Batch) -> StepResult:
        self.num_runs += 1
        if self.num_runs in self._failing:
            raise MemoryError("no memory for this batch")
        return super().run(batch)

    def close(self) -> None:
        self.is_closed = True


class Clock:
    """Goes on when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def failing(
    *, fails_at: int = 2, times: int = 1, recovery: Recovery | None = None, **settings: object
) -> tuple[Engine, FailingExecutor]:
    config = configure(**settings)
    executor = FailingExecutor(config, fails_at=fails_at, times=times)
    return Engine(config, executor=executor, recovery=recovery), executor


def test_a_failed_step_is_tried_again_and_nobody_notices() -> None:
    smooth, _ = failing(times=0)
    rough, executor = failing(times=2, max_retry_attempts=2)
    for engine in (smooth, rough):
        engine.submit_request("Hello", of_tokens(10))
    assert rough.run() == smooth.run()
    assert executor.num_runs == 12


def test_a_step_that_keeps_failing_ends_its_requests_and_others_go_on() -> None:
    engine, _ = failing(fails_at=2, times=3, max_retry_attempts=2)
    engine.submit_request("first", of_tokens(10))
    engine.step()
    engine.step()
    engine.submit_request("second", of_tokens(10))
    (second,) = engine.run()
    assert second.is_success


def test_skipping_ends_the_requests_of_the_step_alone() -> None:
    engine, _ = failing(fails_at=2, max_num_seqs=1)
    engine.submit_request("runs", of_tokens(10))
    engine.submit_request("waits", of_tokens(10))
    failed, fine = engine.run()
    assert (failed.finish_reason, len(failed.output_text)) == ("error", 1)
    assert failed.error is not None
    assert "MemoryError" in failed.error
    assert fine.is_success
    assert engine.core.stats().blocks.held == 0


def test_a_reset_ends_all_requests_and_begins_anew() -> None:
    engine, _ = failing(
        recovery=retry_then(RecoveryAction.RESET, max_retry_attempts=0), max_num_seqs=1
    )
    engine.submit_request("runs", of_tokens(10))
    engine.submit_request("waits", of_tokens(10))
    results = engine.run()
    assert [result.finish_reason for result in results] == ["error", "error"]
    assert results[1].error == "the engine was reset after a step that failed"
    engine.submit_request("after", of_tokens(10))
    assert engine.run()[0].is_success
    engine.core.check_invariants()


def test_a_shutdown_ends_all_requests_and_takes_no_more() -> None:
    engine, executor = failing(
        recovery=retry_then(RecoveryAction.SHUTDOWN, max_retry_attempts=1), times=2, max_num_seqs=1
    )
    engine.submit_request("runs", of_tokens(10))
    engine.submit_request("waits", of_tokens(10))
    assert [result.finish_reason for result in engine.run()] == ["error", "error"]
    assert executor.is_closed
    for action in (engine.step, lambda: engine.submit_request("more")):
        with pytest.raises(EngineDeadError, match="shut down after a step that failed"):
            action()
    assert engine.run() == []


def test_whoever_recovers_sees_the_error_and_the_number_of_attempts() -> None:
    seen: list[StepFailure] = []

    def decide(failure: StepFailure) -> RecoveryAction:
        seen.append(failure)
        return RecoveryAction.RETRY if len(seen) < 3 else RecoveryAction.SKIP

    engine, _ = failing(times=5, recovery=decide)
    engine.submit_request("Hello", of_tokens(3))
    engine.run()
    assert [failure.num_attempts for failure in seen] == [1, 2, 3]
    assert all(isinstance(failure.error, MemoryError) for failure in seen)


def test_a_request_whose_time_is_up_ends_with_an_error_and_others_go_on() -> None:
    clock = Clock()
    engine = Engine(configure(request_timeout_seconds=50.0), clock=clock)
    engine.submit_request("short", of_tokens(100, timeout_seconds=5.0))
    engine.submit_request("long", of_tokens(100))
    engine.step()
    clock.now += 5.0
    (ended,) = engine.step()
    assert (ended.finish_reason, ended.error) == ("timeout", "the request did not end in time")
    assert len(ended.output_text) == 2
    clock.now += 45.0
    assert [result.finish_reason for result in engine.run()] == ["timeout"]
    assert engine.core.stats().blocks.held == 0


async def test_a_stream_ends_with_the_error_of_its_request() -> None:
    engine, _ = failing(fails_at=3)
    stream = engine.stream("Hello", of_tokens(10))
    assert len(await anext(stream) + await anext(stream)) == 2
    with pytest.raises(RequestError, match="failed on this request: MemoryError"):
        await anext(stream)
    with pytest.raises(RequestError, match="prompt: must not be empty"):
        await anext(engine.stream(""))
