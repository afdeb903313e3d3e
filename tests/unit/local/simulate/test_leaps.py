"""Leaps of decode steps end where single steps would, whoever looks meanwhile."""

from dataclasses import astuple
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from quire_engine.protocol.messages import TokenDelta
from quire_local.simulate.agenda import Agenda
from quire_local.simulate.engine import SimulatedEngine
from quire_local.simulate.hardware import Limits
from quire_local.simulate.jobs import Fate, Job
from tests.unit.local.simulate.builders import MAX_MODEL_LEN, SLO, engine_types

requests = st.tuples(st.floats(0, 4), st.integers(1, 600), st.integers(1, 200))


def replay(
    trace: list[tuple[float, int, int]], looks: list[float], *, leaps: bool
) -> tuple[list[Job], SimulatedEngine]:
    (kind,) = engine_types("l4")
    agenda = Agenda()
    jobs = [
        Job(number, arrival, prompt, output, 400, prompt)
        for number, (arrival, prompt, output) in enumerate(sorted(trace))
    ]
    num_open = len(jobs)

    def take(job: Job, delta: TokenDelta, now: float) -> None:
        nonlocal num_open
        if delta.token_ids and job.first_token_at is None:
            job.first_token_at = now
        job.num_received += len(delta.token_ids)
        if delta.finish_reason is not None:
            job.ended_at, job.fate = now, Fate.ANSWERED
            num_open -= 1

    engine = SimulatedEngine(
        kind.config(max_model_len=MAX_MODEL_LEN, slo=SLO, limits=Limits(), has_deadlines=False),
        kind.target,
        agenda=agenda,
        lengths={job.number: job.num_output_tokens for job in jobs},
        seed=1,
        take=take,
        changed=lambda _: None,
        takes_leaps=leaps,
    )
    scheduler = engine.core.scheduler
    scheduler.pace.observe_step = lambda *_: None  # type: ignore[method-assign]  # learnt later in leaps

    def come(job: Job) -> None:
        engine.add(job, holds_room=True, deadline_seconds=None, gateway="g", count=job.number)

    for job in jobs:
        agenda.at(job.arrival, partial(come, job))
    for at in looks:
        agenda.at(at, engine.settle)
    agenda.run(lambda: num_open == 0)
    engine.core.check_invariants()
    return jobs, engine


@settings(max_examples=60, deadline=None)
@given(st.lists(requests, min_size=1, max_size=10), st.lists(st.floats(0, 8), max_size=6))
def test_leaps_change_no_time_of_any_request(
    trace: list[tuple[float, int, int]], looks: list[float]
) -> None:
    jobs, engine = replay(trace, looks, leaps=True)
    singly, single_engine = replay(trace, looks, leaps=False)
    assert [astuple(job) for job in jobs] == [astuple(job) for job in singly]
    assert engine.core.num_steps == single_engine.core.num_steps
    assert engine.core.scheduler.blocks.pool.num_held == 0
    assert engine.num_leaps <= single_engine.num_leaps


def test_a_request_alone_takes_few_leaps() -> None:
    jobs, engine = replay([(0.0, 100, 300)], [], leaps=True)
    assert jobs[0].num_received == 300
    assert engine.core.num_steps == 300
    assert engine.num_leaps < 12
