"""One request that makes a step fail fails alone; the others' tokens are those without it."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quire_engine.config import (
    AdmissionConfig,
    CacheConfig,
    EngineConfig,
    ExecutorConfig,
    SchedulerConfig,
)
from quire_engine.core.engine import EngineCore
from quire_engine.core.isolation import NOT_FINITE, run_isolated
from quire_engine.errors import EngineDeadError
from quire_engine.execution.base import Batch, Executor, Progress, StepResult
from quire_engine.execution.native_cpu.executor import NativeExecutor
from quire_engine.execution.recovering import RecoveringExecutor, RecoveryAction, retry_then
from quire_engine.execution.simulated import SimulatedExecutor
from quire_engine.execution.torch_cpu.executor import TorchExecutor
from quire_engine.models.loading.weights import open_weights
from quire_engine.protocol.messages import AddRequest, FinishReason, ModelFacts, TokenDelta
from quire_engine.protocol.sampling import SamplingParams
from quire_kernels.cpu import unavailable_reason
from tests.unit.core_process.late import LateExecutor
from tests.unit.core_process.poison import Harm, PoisonedExecutor, PoisonError
from tests.unit.models.builders import make_llama
from tests.unit.simulated.builders import batch, build_executor, start

NUM_BLOCKS = 24
CONFIG = EngineConfig(
    cache=CacheConfig(max_num_blocks=NUM_BLOCKS),
    scheduler=SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=48),
    admission=AdmissionConfig(admission_ceiling=1.0, background_ceiling=1.0),
    executor=ExecutorConfig(device="cpu", num_threads=1, overlap=True),
)
FIRST_CULPRIT = 190
"""Prompts that begin with this token or a later one are culprits; nobody else's do."""


@dataclass(frozen=True)
class Case:
    """One request of a test."""

    prompt: tuple[int, ...]
    max_tokens: int = 4
    arrives_at: int = 0
    temperature: float = 0.0

    @property
    def is_culprit(self) -> bool:
        return self.prompt[0] >= FIRST_CULPRIT


@dataclass
class Outcome:
    """What became of a request."""

    token_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    error: str | None = None

    def take(self, delta: TokenDelta) -> None:
        self.token_ids += delta.token_ids
        self.finish_reason = delta.finish_reason
        self.error = delta.error


def torch_executor(folder: Path) -> Executor:
    return TorchExecutor(CONFIG, folder)


def native_executor(folder: Path) -> Executor:
    reason = unavailable_reason()
    if reason is not None:
        pytest.skip(f"the CPU kernels cannot be used: {reason}")
    return NativeExecutor(CONFIG, open_weights(folder))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama(tmp_path_factory.mktemp("tiny")).folder


@pytest.fixture(scope="module", params=[torch_executor, native_executor])
def loaded(request: pytest.FixtureRequest, folder: Path) -> Iterator[tuple[Executor, ModelFacts]]:
    threads = torch.get_num_threads()
    make: Callable[[Path], Executor] = request.param
    executor = make(folder)
    executor.load(lambda stage, fraction: None)
    yield executor, executor.allocate_cache()
    executor.close()
    torch.set_num_threads(threads)


def serve(
    loaded: tuple[Executor, ModelFacts],
    cases: list[Case],
    harms: dict[int, tuple[Harm, int]] | None = None,
    *,
    is_late: bool = False,
) -> tuple[list[Outcome], EngineCore]:
    """Let every case arrive in its step, and step until all have ended.

    Parameters
    ----------
    is_late
        Whether steps overlap.
    """
    executor: Executor = PoisonedExecutor(loaded[0], harms or {})
    if is_late:
        executor = LateExecutor(executor)
    core = EngineCore(CONFIG, executor, loaded[1], random_source=random.Random(3))
    outcomes = [Outcome() for _ in cases]
    step = 0
    while core.has_work() or any(case.arrives_at >= step for case in cases):
        for number, case in enumerate(cases):
            if case.arrives_at == step:
                assert core.add(ask(str(number), case), float(step)) is None
        for _, delta in core.step(float(step)):
            outcomes[int(delta.request_id)].take(delta)
        core.check_invariants()
        step += 1
    return outcomes, core


def ask(request_id: str, case: Case) -> AddRequest:
    return AddRequest(
        client_id="api",
        request_id=request_id,
        prompt_token_ids=list(case.prompt),
        sampling=SamplingParams(
            max_tokens=case.max_tokens, temperature=case.temperature, seed=len(case.prompt)
        ),
    )


def some_prompt(length: int, first: int = 1) -> tuple[int, ...]:
    rng = random.Random(length)
    return (first, *(rng.randrange(FIRST_CULPRIT) for _ in range(length - 1)))


INNOCENT = st.builds(
    Case,
    prompt=st.builds(some_prompt, st.integers(1, 60), st.integers(1, 3)),
    max_tokens=st.integers(1, 20),
    arrives_at=st.integers(0, 8),
    temperature=st.sampled_from([0.0, 1.0]),
)


@st.composite
def culprits(draw: st.DrawFn) -> tuple[list[Case], dict[int, tuple[Harm, int]]]:
    """One to four culprits, all of them sure to do harm before they end."""
    cases, harms = [], {}
    for number in range(draw(st.integers(1, 4))):
        first = FIRST_CULPRIT + number
        length = draw(st.integers(1, 60))
        harm = draw(st.sampled_from(list(Harm)))
        # NaN shows in the token after the one during which it came
        late = length + 1 if harm is Harm.NAN else length + 3
        harms[first] = (harm, draw(st.integers(0, late)))
        arrives_at = draw(st.integers(0, 8))
        cases.append(Case(some_prompt(length, first), max_tokens=6, arrives_at=arrives_at))
    return cases, harms


@settings(deadline=None, max_examples=60)
@given(
    innocents=st.lists(INNOCENT, max_size=6),
    poison=culprits(),
    order=st.randoms(),
    is_late=st.booleans(),
)
def test_only_culprits_fail_and_all_others_get_the_tokens_they_get_without_them(
    loaded: tuple[Executor, ModelFacts],
    innocents: list[Case],
    poison: tuple[list[Case], dict[int, tuple[Harm, int]]],
    order: random.Random,
    is_late: bool,
) -> None:
    cases = [*innocents, *poison[0]]
    order.shuffle(cases)
    outcomes, core = serve(loaded, cases, poison[1], is_late=is_late)
    without, _ = serve(loaded, [case for case in cases if not case.is_culprit])

    expected = iter(without)
    for case, outcome in zip(cases, outcomes, strict=True):
        if case.is_culprit:
            assert outcome.finish_reason is FinishReason.ERROR
            assert outcome.error in (NOT_FINITE, "the engine failed on this request: PoisonError")
        else:
            assert outcome == next(expected)
            assert outcome.finish_reason is FinishReason.LENGTH
    assert core.stats().blocks.held == 0
    assert core.stats().blocks.free == NUM_BLOCKS


def test_nothing_of_a_request_that_was_not_finite_is_found_again(
    loaded: tuple[Executor, ModelFacts],
) -> None:
    prompt = some_prompt(50, FIRST_CULPRIT)
    outcomes, core = serve(
        loaded, [Case(prompt), Case(prompt, arrives_at=9)], {FIRST_CULPRIT: (Harm.NAN, 50)}
    )

    assert [outcome.error for outcome in outcomes] == [NOT_FINITE, NOT_FINITE]
    assert core.stats().num_prefix_hits == 0
    assert core.stats().blocks.cached == 0


def test_a_culprit_is_found_in_about_two_runs_for_each_halving(
    loaded: tuple[Executor, ModelFacts],
) -> None:
    executor = PoisonedExecutor(loaded[0], {FIRST_CULPRIT: (Harm.RAISE, 0)})
    core = EngineCore(CONFIG, executor, loaded[1])
    for number, first in enumerate((1, 2, FIRST_CULPRIT, 3)):
        core.add(ask(str(number), Case(some_prompt(9, first))), 0.0)
    deltas = {delta.request_id: delta for _, delta in core.step(0.0)}

    assert executor.num_runs == 5  # 0123, 01, 23, 2, 3
    assert deltas["2"].finish_reason is FinishReason.ERROR
    assert all(len(deltas[number].token_ids) == 1 for number in "013")


class BrokenExecutor(PoisonedExecutor):
    """Fails always; the device may be lost."""

    is_lost = False

    def probe(self) -> None:
        if self.is_lost:
            raise RuntimeError("an illegal memory access was encountered")


@pytest.mark.parametrize("is_lost", [False, True])
def test_when_all_fail_the_core_ends_only_if_the_device_is_lost(
    loaded: tuple[Executor, ModelFacts], is_lost: bool
) -> None:
    executor = BrokenExecutor(loaded[0], {FIRST_CULPRIT: (Harm.RAISE, 0)})
    executor.is_lost = is_lost
    core = EngineCore(CONFIG, executor, loaded[1])
    for number in range(3):
        core.add(ask(str(number), Case(some_prompt(5 + number, FIRST_CULPRIT))), 0.0)

    if is_lost:
        with pytest.raises(EngineDeadError):
            core.step(0.0)
    else:
        reasons = {delta.finish_reason for _, delta in core.step(0.0)}
        assert reasons == {FinishReason.ERROR}
        assert core.stats().blocks.held == 0


def test_after_a_reset_was_decided_nobody_looks_for_the_culprit(
    loaded: tuple[Executor, ModelFacts],
) -> None:
    poisoned = PoisonedExecutor(loaded[0], {FIRST_CULPRIT: (Harm.RAISE, 0)})
    decide = retry_then(RecoveryAction.RESET, max_retry_attempts=1)
    core = EngineCore(CONFIG, RecoveringExecutor(poisoned, decide), loaded[1])
    for number, first in enumerate((1, FIRST_CULPRIT, 2)):
        core.add(ask(str(number), Case(some_prompt(7, first))), 0.0)
    deltas = [delta for _, delta in core.step(0.0)]

    assert poisoned.num_runs == 2
    assert [delta.error for delta in deltas] == [
        "the engine failed on this request: PoisonError"
    ] * 3


class RowHater(Executor):
    """Raises as long as some rows are in the batch, before anything is changed."""

    def __init__(self, inner: Executor, *rows: int) -> None:
        self._inner = inner
        self._rows = rows

    def load(self, progress: Progress) -> None:
        raise NotImplementedError

    def allocate_cache(self) -> ModelFacts:
        raise NotImplementedError

    def run(self, batch: Batch) -> StepResult:
        if not set(batch.chunks.rows).isdisjoint(self._rows):
            raise PoisonError
        return self._inner.run(batch)

    def close(self) -> None:
        self._inner.close()


def build_step() -> tuple[SimulatedExecutor, Batch]:
    """An executor that checks every batch, and one in which row 0 ends and starts anew."""
    executor = build_executor()
    rows = [start(0, [5] * 16, [1]), start(1, [6] * 3, [2])]
    executor.run(batch((0, 0, 16, True), (1, 0, 3, True), started=rows))
    chunks = ((1, 3, 1, True), (0, 0, 7, True), (2, 0, 4, True))
    rows = [start(0, [7] * 7, [3]), start(2, [8] * 4, [4])]
    return executor, batch(*chunks, started=rows, ended=[0], num_decodes=1)


@pytest.mark.parametrize("culprit", [0, 1, 2])
def test_parts_of_a_batch_keep_the_executors_contract(culprit: int) -> None:
    executor, step = build_step()
    outcome = run_isolated(RowHater(executor, culprit), step)
    executor, step = build_step()
    whole = executor.run(step).token_ids

    index = step.chunks.rows.index(culprit)
    assert list(outcome.errors) == [index]
    assert [t for i, t in enumerate(outcome.result.token_ids) if i != index] == [
        t for i, t in enumerate(whole) if i != index
    ]
    assert outcome.unstarted_rows == {culprit} - {1}
    assert outcome.unended_rows == []


def test_rows_that_were_to_end_in_a_lost_step_end_in_the_next() -> None:
    executor, step = build_step()
    outcome = run_isolated(RowHater(executor, 0, 1, 2), step)

    assert outcome.unended_rows == [0]
    assert outcome.unstarted_rows == {0, 2}
    assert sorted(outcome.errors) == [0, 1, 2]
