"""How much of a prompt fits a step, and how soon prompts are through."""

from hypothesis import given
from hypothesis import strategies as st

from quire_engine.profiles.step_time import StepLimits, StepTimeModel
from quire_engine.protocol.messages import Priority
from quire_engine.scheduler.pace import MAX_LEAP, Pace, StepLoad

LIMITS = StepLimits(num_decodes=256, context_tokens=1_000_000, prefill_tokens=8192)

models = st.builds(
    lambda base, slope, sequence, context, pair: StepTimeModel(
        source="test",
        compute_tokens=(1, 256, 8192),
        compute_seconds=(base, base, base + 7936 * slope),
        seconds_per_sequence=sequence,
        seconds_per_context_token=context,
        seconds_per_pair=pair,
        limits=LIMITS,
    ),
    st.floats(1e-3, 0.05),
    st.floats(1e-7, 1e-4),
    st.floats(0, 1e-4),
    st.floats(0, 1e-7),
    st.floats(0, 1e-9),
)
loads = st.builds(StepLoad, num_decodes=st.integers(0, 256), context_tokens=st.integers(0, 300_000))
starts = st.integers(0, 30_000)
counts = st.integers(1, 8192)
budgets = st.floats(1e-3, 0.5)


def build_pace(model: StepTimeModel | None, budget: float | None) -> Pace:
    return Pace(model, step_seconds_budget=budget, max_num_batched_tokens=8192)


@given(models, loads, starts, counts, budgets)
def test_a_chunk_is_the_largest_that_keeps_the_budget(
    model: StepTimeModel, load: StepLoad, start: int, wanted: int, budget: float
) -> None:
    pace = build_pace(model, budget)
    chunk = pace.chunk_limit(load, start, wanted)
    assert min(wanted, 16) <= chunk <= wanted, "a prompt starves, or gets what it did not want"
    if chunk > 16:
        assert pace.seconds_with(load, start, chunk) <= budget
    if chunk < wanted:
        assert pace.seconds_with(load, start, chunk + 1) > budget


@given(models, loads, starts, counts, budgets, st.integers(0, 500), st.floats(0, 0.1))
def test_less_load_and_more_time_never_make_a_chunk_smaller(
    model: StepTimeModel,
    load: StepLoad,
    start: int,
    wanted: int,
    budget: float,
    fewer: int,
    more: float,
) -> None:
    chunk = build_pace(model, budget).chunk_limit(load, start, wanted)
    lighter = StepLoad(max(load.num_decodes - fewer, 0), max(load.context_tokens - fewer, 0))
    assert build_pace(model, budget).chunk_limit(lighter, start, wanted) >= chunk
    assert build_pace(model, budget + more).chunk_limit(load, start, wanted) >= chunk
    assert build_pace(model, budget).chunk_limit(load, start + fewer, wanted) <= chunk


@given(models, starts, budgets)
def test_steps_grow_by_leaps_beyond_what_the_model_has_seen(
    model: StepTimeModel, start: int, budget: float
) -> None:
    seen = StepLimits(num_decodes=256, context_tokens=1_000_000, prefill_tokens=32)
    narrow = StepTimeModel(
        source="test",
        compute_tokens=(1, 2),
        compute_seconds=(0.0, 0.0),
        limits=seen,
    )
    pace = build_pace(narrow, budget)
    load = StepLoad()
    assert pace.chunk_limit(load, start, 8192) == MAX_LEAP * 32
    load.add_chunk(start, MAX_LEAP * 32)
    assert pace.chunk_limit(load, start, 8192) == 0
    assert pace.is_spent(load)


def test_without_a_model_or_a_budget_nothing_is_limited() -> None:
    assert build_pace(None, 0.1).chunk_limit(StepLoad(), 0, 5000) == 5000
    assert build_pace(None, 0.1).beside(StepLoad(), Priority.INTERACTIVE).seconds(5000, 0) == 0.0


@given(models, st.lists(st.integers(1, 5000), max_size=40), counts, budgets, st.data())
def test_as_many_decodes_as_fit_take_part_beside_prompts(
    model: StepTimeModel, contexts: list[int], num_tokens: int, budget: float, data: st.DataObject
) -> None:
    num_fixed = data.draw(st.integers(0, len(contexts)))
    pace = build_pace(model, budget)
    count = pace.num_decodes_beside(contexts, num_fixed, num_tokens)

    def seconds(count: int) -> float:
        return pace.seconds_with(StepLoad(count, sum(contexts[:count])), 0, num_tokens)

    assert num_fixed <= count <= len(contexts)
    assert count == num_fixed or seconds(count) <= budget
    assert count == len(contexts) or seconds(count + 1) > budget


@given(models, loads, counts, counts, starts, budgets)
def test_more_prompt_tokens_never_take_less_time(
    model: StepTimeModel, load: StepLoad, some: int, more: int, start: int, budget: float
) -> None:
    prompts = build_pace(model, budget).beside(load, Priority.INTERACTIVE)
    together = prompts.seconds(some + more, start)
    assert 0 < prompts.seconds(some, start) <= together * (1 + 1e-9)


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5), st.integers(1, 40))
def test_equal_steps_teach_the_same_one_by_one_and_together(
    earlier: list[float], num_steps: int
) -> None:
    singly, together = build_pace(None, None), build_pace(None, None)
    for seconds in earlier:
        singly.observe_step(seconds)
        together.observe_step(seconds)
    for _ in range(num_steps):
        singly.observe_step(0.5)
    together.observe_step(0.5, num_steps)
    one, other = singly.seconds_per_token(1, 1), together.seconds_per_token(1, 1)
    assert abs(one - other) < 1e-9
