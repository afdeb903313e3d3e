"""Steps that overlap: the same tokens, exact accounts, and at most one token computed in vain."""

import random
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire_engine.config import (
    AdmissionConfig,
    CacheConfig,
    EngineConfig,
    ExecutorConfig,
    ModelConfig,
    SchedulerConfig,
)
from quire_engine.core.engine import EngineCore
from quire_engine.errors import EngineDeadError
from quire_engine.execution.clocks import VirtualClock
from quire_engine.execution.simulated import SimulatedExecutor
from quire_engine.grammar.writing import write_grammar
from quire_engine.protocol import metric_names as names
from quire_engine.protocol.beams import BeamParams
from quire_engine.protocol.buckets import STEP_SECONDS
from quire_engine.protocol.grammar import Grammar, RegexGrammar
from quire_engine.protocol.messages import (
    AddRequest,
    FinishReason,
    Priority,
    StepKind,
    sequence_id,
)
from quire_engine.protocol.sampling import SamplingParams
from tests.unit.core_process.late import LateExecutor, TimedExecutor
from tests.unit.core_process.poison import PoisonError
from tests.unit.core_process.test_grammars import VOCABULARY

CONFIG = EngineConfig(
    model=ModelConfig(max_model_len=128),
    cache=CacheConfig(max_num_blocks=14),
    scheduler=SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=48),
    admission=AdmissionConfig(admission_ceiling=1.0, background_ceiling=1.0),
    executor=ExecutorConfig(
        simulate="h100", model_shape="llama3-8b", simulated_step_seconds=0, overlap=True
    ),
)
WIDE = replace(CONFIG, cache=CacheConfig(max_num_blocks=64))
LETTERS = b"aeinrst "
LETTERS_ALONE = write_grammar(RegexGrammar("[a-z]{3,30}"))


@dataclass(frozen=True)
class Case:
    """One request of a test."""

    prompt: tuple[int, ...]
    max_tokens: int = 8
    stops: tuple[int, ...] = ()
    arrives_at: int = 0
    aborted_at: int | None = None
    priority: Priority = Priority.INTERACTIVE
    num_sequences: int = 1
    choices: dict[str, Any] = field(default_factory=dict)
    width: int = 0
    grammar: Grammar | None = None

    def ask(self, request_id: str) -> AddRequest:
        return AddRequest(
            client_id="api",
            request_id=request_id,
            prompt_token_ids=list(self.prompt),
            sampling=SamplingParams(
                max_tokens=self.max_tokens, seed=7, stop_token_ids=self.stops, **self.choices
            ),
            priority=self.priority,
            num_sequences=self.num_sequences,
            beams=BeamParams(width=self.width) if self.width else None,
            grammar=self.grammar,
        )


Answers = dict[str, tuple[list[int], FinishReason | None]]


class Run:
    """A core over a simulated executor that checks every batch, its tokens late or not."""

    def __init__(self, config: EngineConfig = CONFIG, *, overlaps: bool = True) -> None:
        inner = SimulatedExecutor(config, check=True)
        config = replace(config, executor=replace(config.executor, overlap=overlaps))
        self.executor = LateExecutor(inner)
        self.core = EngineCore(
            config, self.executor, inner.allocate_cache(), random_source=random.Random(3)
        )
        self.core.grammars.use(VOCABULARY)
        self.answers: Answers = {}
        self.num_steps = 0

    def step(self) -> None:
        for _, delta in self.core.step(float(self.num_steps)):
            token_ids, _ = self.answers.get(delta.request_id, ([], None))
            self.answers[delta.request_id] = (token_ids + delta.token_ids, delta.finish_reason)
        self.core.check_invariants()
        self.num_steps += 1

    def serve(self, cases: list[Case]) -> "Run":
        """Let every case come, and go, in its step; step until all have ended."""
        while self.core.has_work() or any(c.arrives_at >= self.num_steps for c in cases):
            for number, case in enumerate(cases):
                if case.arrives_at == self.num_steps:
                    refusal = self.core.add(case.ask(str(number)), float(self.num_steps))
                    assert refusal is None
                if case.aborted_at == self.num_steps:
                    self.core.abort([f"{number}", f"{number}.1"])
            self.step()
        assert not self.executor.in_flight
        blocks = self.core.stats().blocks
        assert (blocks.held, blocks.reserved) == (0, 0)
        return self


def some_prompt(length: int, first: int) -> tuple[int, ...]:
    """Prompts of the same first token begin alike."""
    rng = random.Random(first)
    return (first, *(rng.randrange(200) for _ in range(length - 1)))


CASES = st.builds(
    Case,
    prompt=st.builds(some_prompt, st.integers(1, 70), st.integers(1, 3)),
    max_tokens=st.integers(1, 40),
    stops=st.lists(st.sampled_from(LETTERS), max_size=2).map(tuple),
    arrives_at=st.integers(0, 12),
    aborted_at=st.none() | st.integers(0, 30),
    priority=st.sampled_from(list(Priority)),
    num_sequences=st.sampled_from([1, 1, 1, 2]),
    choices=st.sampled_from([{}, {}, {}, {"num_logprobs": 1}, {"min_tokens": 2}]),
    grammar=st.sampled_from([None, None, None, None, LETTERS_ALONE]),
)


@settings(deadline=None, max_examples=150)
@given(st.lists(CASES, min_size=1, max_size=8))
def test_tokens_are_those_of_single_steps(cases: list[Case]) -> None:
    late, stepped = Run().serve(cases), Run(overlaps=False).serve(cases)

    assert stepped.executor.num_ahead == 0
    for number, case in enumerate(cases):
        for index in range(case.num_sequences):
            name = sequence_id(str(number), index)
            got, expected = late.answers.get(name), stepped.answers.get(name)
            if case.aborted_at is None:
                assert got is not None
                assert got == expected
            else:
                tokens = [answer[0] if answer else [] for answer in (got, expected)]
                shortest = min(map(len, tokens))
                assert tokens[0][:shortest] == tokens[1][:shortest]


def test_a_request_that_ends_by_length_computes_nothing_in_vain() -> None:
    run = Run(WIDE).serve([Case(some_prompt(20, 1), max_tokens=9)])
    assert run.executor.num_ahead == 8
    assert run.num_steps == 9
    assert run.core.stats().num_scheduled_tokens == 20 + 8


def test_a_request_that_stops_computes_one_token_in_vain() -> None:
    cases = [Case(some_prompt(20, 1), max_tokens=60, stops=(ord("e"),))]
    run, stepped = Run(WIDE).serve(cases), Run(WIDE, overlaps=False).serve(cases)
    assert run.answers == stepped.answers
    tokens, reason = run.answers["0"]
    assert (tokens[-1], reason) == (ord("e"), FinishReason.STOP)
    assert run.core.stats().num_scheduled_tokens == 20 + len(tokens)
    assert run.num_steps == len(tokens) + 1


def test_what_ends_gives_its_row_to_those_that_wait() -> None:
    cases = [Case(some_prompt(5 + n, 1), max_tokens=3 + n) for n in range(12)]
    run = Run(WIDE).serve(cases)
    assert {reason for _, reason in run.answers.values()} == {FinishReason.LENGTH}
    assert run.executor.num_ahead > run.num_steps // 2


def test_with_both_steps_in_flight_a_request_can_go_at_once() -> None:
    run = Run(WIDE)
    run.core.add(Case(some_prompt(30, 1), max_tokens=50).ask("a"), 0.0)
    run.core.add(Case(some_prompt(30, 2), max_tokens=9).ask("b"), 0.0)
    run.step()
    run.step()
    assert len(run.core.in_flight) == 1
    run.core.abort(["a"])
    assert run.core.stats().num_running == 1
    run.core.check_invariants()
    # it takes the row and the blocks that the step in flight still writes to
    run.core.add(Case(some_prompt(40, 3), max_tokens=9).ask("c"), 2.0)
    run.serve([])
    assert len(run.answers["a"][0]) == 2
    for name, first, length in (("b", 2, 30), ("c", 3, 40)):
        alone = Run(WIDE).serve([Case(some_prompt(length, first), max_tokens=9)])
        assert run.answers[name] == alone.answers["0"]


@pytest.mark.parametrize(
    "special",
    [
        Case((9, 8, 7), choices={"num_logprobs": 2}),
        Case((9, 8, 7), choices={"presence_penalty": 1.0}),
        Case((9, 8, 7), choices={"logit_bias": ((5, 1.0),)}),
        Case((9, 8, 7), max_tokens=1, choices={"pooling": "last"}),
        Case((9, 8, 7), width=2),
        Case((9, 8, 7), grammar=LETTERS_ALONE),
    ],
    ids=["scores", "penalties", "biases", "embedding", "beams", "grammar"],
)
def test_a_step_whose_tokens_are_looked_at_is_taken_in_first(special: Case) -> None:
    run = Run(WIDE).serve([special])
    assert run.executor.num_ahead == 0
    plain = Run(WIDE).serve([special, Case(some_prompt(10, 1), max_tokens=30)])
    assert plain.executor.num_ahead > 0


def test_who_gives_way_has_all_its_tokens() -> None:
    cases = [Case(some_prompt(30, first), max_tokens=60) for first in (1, 2, 3, 4)]
    run, stepped = Run().serve(cases), Run(overlaps=False).serve(cases)
    assert run.core.stats().num_preemptions > 0
    assert run.executor.num_ahead > 0
    assert run.answers == stepped.answers


def test_an_interactive_request_takes_a_background_ones_place() -> None:
    slow = [Case(some_prompt(20, n), 40, priority=Priority.BACKGROUND) for n in range(1, 5)]
    cases = [*slow, Case(some_prompt(20, 9), arrives_at=6)]
    run, stepped = Run(WIDE).serve(cases), Run(WIDE, overlaps=False).serve(cases)
    assert run.core.stats().num_displacements == 1
    assert run.answers == stepped.answers


def test_admission_answers_alike() -> None:
    ceiling = AdmissionConfig(admission_ceiling=0.6, background_ceiling=0.3)
    config = replace(WIDE, admission=ceiling)
    answers = []
    for overlaps in (True, False):
        run = Run(config, overlaps=overlaps)
        reasons = []
        for number in range(12):
            request = Case(some_prompt(60, number), max_tokens=60).ask(str(number))
            request.starts_now = True
            refusal = run.core.add(request, float(run.num_steps))
            reasons.append(refusal and refusal.finish_reason)
            run.step()
        answers.append(reasons)
    assert answers[0] == answers[1]
    assert set(answers[0]) == {None, FinishReason.REFUSED}


def test_a_failure_behind_which_a_step_was_begun_ends_the_core() -> None:
    run = Run(WIDE)
    run.core.add(Case(some_prompt(30, 1), max_tokens=50).ask("a"), 0.0)
    run.step()
    run.executor.in_flight[0] = PoisonError()
    with pytest.raises(EngineDeadError):
        run.step()


def test_step_seconds_are_counted_once() -> None:
    clock = VirtualClock()
    inner = SimulatedExecutor(WIDE, check=True)
    executor = TimedExecutor(inner, clock)
    core = EngineCore(WIDE, executor, inner.allocate_cache(), clock=clock.now, step_clock=clock.now)
    core.add(Case(some_prompt(20, 1), max_tokens=40).ask("a"), 0.0)
    scored = Case(some_prompt(20, 2), max_tokens=5, choices={"num_logprobs": 1})
    while core.has_work():
        core.step(clock.now())
        if clock.now() == 20.0:
            core.add(scored.ask("scored"), clock.now())
    assert clock.now() == 40.0
    assert executor.num_ahead > 30
    histograms = core.stats().histograms
    seconds = [histograms[names.keyed(names.STEP_SECONDS, kind)] for kind in StepKind]
    assert sum(counts.sum for counts in seconds) == 40.0
    one_second = bisect_left(STEP_SECONDS, 1.0)
    assert sum(counts.counts[one_second] for counts in seconds) == 40
    model = core.profile().step_time
    assert model is not None
    assert model.predict(1, 40) == pytest.approx(1.0, rel=0.05)


def test_the_devices_own_seconds_are_learnt() -> None:
    clock = VirtualClock()
    inner = SimulatedExecutor(WIDE, check=True)
    executor = TimedExecutor(inner, clock)
    executor.own_seconds = 0.25  # of the second after which the host, busy, sees that it ended
    core = EngineCore(WIDE, executor, inner.allocate_cache(), clock=clock.now)
    core.add(Case(some_prompt(20, 1), max_tokens=40).ask("a"), 0.0)
    while core.has_work():
        core.step(clock.now())
    model = core.profile().step_time
    assert model is not None
    assert model.predict(1, 40) == pytest.approx(0.25, rel=0.05)
