"""Many decode steps taken as one, in virtual time, are the same as one by one."""

import os
from dataclasses import astuple

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks.replay import Replay
from quire_engine.config import (
    AdmissionConfig,
    CacheConfig,
    EngineConfig,
    ExecutorConfig,
    ModelConfig,
    SchedulerConfig,
)
from quire_engine.core.engine import EngineCore
from quire_engine.profiles.traces import TraceRequest
from quire_engine.protocol.messages import Priority

INTERACTIVE, BACKGROUND = Priority.INTERACTIVE, Priority.BACKGROUND
NUM_TRACES = 400 if os.environ.get("QUIRE_DEEP") == "1" else 150

requests = st.builds(TraceRequest, st.floats(0, 3), st.integers(1, 120), st.integers(1, 150))
traces = st.lists(requests, min_size=1, max_size=12).map(
    lambda trace: sorted(trace, key=lambda request: request.arrival_seconds)
)


def learn_no_pace(core: EngineCore) -> None:
    """Predict by the model alone: joined steps are learnt from later, and then decide otherwise."""
    core.scheduler.pace.observe_step = lambda *_: None  # type: ignore[method-assign]


class RecordedReplay(Replay):
    """Remembers what is held at the end of each step."""

    def __init__(
        self,
        trace: list[TraceRequest],
        *,
        slo: float | None,
        num_blocks: int,
        macro_steps: bool,
        background: frozenset[int] = frozenset(),
    ) -> None:
        self.held: dict[float, tuple[int, int]] = {}
        super().__init__(
            EngineConfig(
                model=ModelConfig(max_model_len=512),
                cache=CacheConfig(max_num_blocks=num_blocks),
                scheduler=SchedulerConfig(
                    max_num_seqs=4, max_num_batched_tokens=128, ageing_seconds=1.0
                ),
                admission=AdmissionConfig(
                    slo_time_to_first_token=slo, slo_time_per_output_token=0.06 if slo else None
                ),
                executor=ExecutorConfig(simulate="a100-80", model_shape="llama3.1-8b"),
            ),
            trace,
            max_tokens=200,
            priority=lambda index: BACKGROUND if index in background else INTERACTIVE,
            prepare=learn_no_pace,
            watch=self.record,
            macro_steps=macro_steps,
        )

    def record(self, core: EngineCore, now: float) -> None:
        scheduler = core.scheduler
        self.held[now] = (scheduler.blocks.pool.num_held, len(scheduler.running))


@settings(max_examples=NUM_TRACES, deadline=None)
@given(
    traces,
    st.sampled_from([None, 0.5, 2.0]),
    st.sampled_from([32, 64]),
    st.frozensets(st.integers(0, 11)),
)
def test_macro_steps_change_nothing_but_the_number_of_batches(
    trace: list[TraceRequest], slo: float | None, num_blocks: int, background: frozenset[int]
) -> None:
    singly, together = (
        RecordedReplay(
            trace,
            slo=slo,
            num_blocks=num_blocks,
            macro_steps=macro_steps,
            background=background,
        )
        for macro_steps in (False, True)
    )
    one, other = singly.run(), together.run()
    # joined steps take all their blocks first: what a request that comes back still finds cached
    # may then differ, and with it what it computes again
    counters = one.core.scheduler.counters
    assume(not (counters.num_preemptions and one.core.scheduler.blocks.pool.num_evictions))
    for single, joint in zip(one.outcomes, other.outcomes, strict=True):
        assert astuple(single) == astuple(joint)
    assert one.seconds == other.seconds
    assert one.core.num_steps == other.core.num_steps
    assert one.core.scheduler.counters == other.core.scheduler.counters
    assert together.held.items() <= singly.held.items()
    assert len(together.held) <= len(singly.held)


def test_an_answer_alone_takes_few_batches() -> None:
    trace = [TraceRequest(0.0, 10, 150)]
    replay = RecordedReplay(trace, slo=None, num_blocks=64, macro_steps=True)
    assert replay.run().core.num_steps == 150
    assert len(replay.held) == 2
