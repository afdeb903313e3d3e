"""Steps that overlap while they are measured, as those of the engine will."""

from collections import deque

import pytest

from quire_engine.calibration.profiling import profile_engine
from quire_engine.calibration.rig import RowsLeftError, StepRig
from quire_engine.calibration.trials import Trial
from quire_engine.config import EngineConfig
from quire_engine.execution.base import AheadExecutor, Batch, StepResult
from quire_engine.profiles.step_time import StepTimeModel, count_pairs
from tests.unit.calibration.engines import CONFIG, KnownEngine, truth

HOST_SECONDS = 0.7e-3
"""What the host takes to give a step to the device; the shortest one takes this 1 ms."""
TRIAL = Trial(3, 90, ((0, 40),))


class AheadEngine(KnownEngine, AheadExecutor):
    """A device that computes while the host gives it the next step.

    Parameters
    ----------
    tells_seconds
        Whether results say how long the device took.
    late
        Seconds until the host sees that a step has ended.
    loses_at
        The step with this number fails when it is collected.
    """

    def __init__(
        self, *, tells_seconds: bool = False, late: float = 0.0, loses_at: int | None = None
    ) -> None:
        super().__init__(truth())
        self.steps: deque[tuple[int, float, float]] = deque()
        self.num_submitted = 0
        self.most_in_flight = 0
        self._free_at = 0.0
        self._tells_seconds = tells_seconds
        self._late = late
        self._loses_at = loses_at

    def submit(self, batch: Batch) -> None:
        self.clock.sleep_until(self.clock.now() + HOST_SECONDS)
        self._account(batch)
        self.num_steps += 1
        begin = max(self.clock.now(), self._free_at)
        self._free_at = begin + seconds_of(self.step_time, batch)
        self.num_submitted += 1
        self.steps.append((self.num_submitted, begin, self._free_at))
        self.most_in_flight = max(self.most_in_flight, len(self.steps))

    def collect(self) -> StepResult:
        number, begin, end = self.steps.popleft()
        self.clock.sleep_until(end + self._late)
        if number == self._loses_at:
            raise ValueError("a step that fails late")
        return StepResult([], seconds=end - begin if self._tells_seconds else None)


def seconds_of(model: StepTimeModel | None, batch: Batch) -> float:
    assert model is not None
    chunks, decodes = batch.chunks, batch.chunks.num_decodes
    context = sum(chunks.starts[:decodes]) + decodes
    pairs = sum(map(count_pairs, chunks.starts[decodes:], chunks.num_tokens[decodes:]))
    return model.predict(decodes, context, batch.total_tokens - decodes, pairs)


def measured(engine: AheadEngine, config: EngineConfig = CONFIG) -> StepTimeModel:
    profile = profile_engine(
        engine,
        engine.facts,
        config,
        model="known",
        budget_seconds=10.0,
        progress=lambda _stage, _fraction: None,
        clock=engine.clock.now,
    )
    assert engine.rows == {}
    return profile.step_time


@pytest.mark.parametrize("tells_seconds", [False, True])
def test_what_the_host_does_meanwhile_is_in_no_steps_time(tells_seconds: bool) -> None:
    engine = AheadEngine(tells_seconds=tells_seconds)
    model, known = measured(engine), truth()
    assert engine.most_in_flight == 2
    for work in ((1, 100), (32, 32 * 500), (0, 0, 600, 600 * 300), (8, 800, 200, 200 * 100)):
        assert model.predict(*work) == pytest.approx(known.predict(*work), rel=0.03)


def test_the_devices_clock_counts_where_there_is_one() -> None:
    engine = AheadEngine(tells_seconds=True, late=5e-3)
    rig = StepRig(engine, engine.facts, engine.clock.now)
    with rig.visit(TRIAL) as run:
        seconds = [run(step < 3) for step in range(4)]
    rig.check_returned()
    expected = [
        truth().predict(3, TRIAL.context_tokens(step), TRIAL.prefill_tokens, TRIAL.prefill_pairs)
        for step in range(4)
    ]
    assert seconds == pytest.approx(expected)


def test_without_overlap_steps_come_one_by_one() -> None:
    engine = AheadEngine()
    rig = StepRig(engine, engine.facts, engine.clock.now, overlaps=False)
    with rig.visit(TRIAL) as run:
        run(True)
    assert engine.most_in_flight == 0
    rig.check_returned()


def test_a_step_that_was_begun_for_nothing_is_waited_for() -> None:
    engine = AheadEngine()
    rig = StepRig(engine, engine.facts, engine.clock.now)
    with rig.visit(TRIAL) as run:
        run(True)
        assert len(engine.steps) == 1
    assert not engine.steps
    assert engine.rows == {}
    rig.check_returned()


def test_a_step_that_fails_with_another_behind_it_leaves_rows() -> None:
    engine = AheadEngine(loses_at=1)
    rig = StepRig(engine, engine.facts, engine.clock.now)
    with pytest.raises(RowsLeftError), rig.visit(TRIAL) as run:
        run(True)
    rig.check_returned()
