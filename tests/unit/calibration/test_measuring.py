import math
import random
from contextlib import nullcontext
from itertools import count

import pytest

from quire_engine.calibration.measuring import compare_again, measure_steps
from quire_engine.calibration.profiling import profile_engine
from quire_engine.calibration.rig import RowsLeftError
from quire_engine.errors import CalibrationError
from quire_engine.profiles.engine_profile import EngineProfile, measure_prefill_rate
from quire_engine.profiles.step_time import StepTimeModel, count_pairs
from tests.unit.calibration.engines import CONFIG, KnownEngine, noisy, truth
from tests.unit.simulated.builders import build_config

SLOW_CPU = truth(compute_seconds=(0.3, 3.0, 100.0))
GRAPHS = truth(prompt_floor_seconds=4e-3, mixed_floor_seconds=5e-3)
FEW_TOKENS_ARE_SLOW = truth(
    seconds_per_context_token=0.0,
    context_tokens=(0, 4096, 65536),
    context_seconds=(0.0, 0.5e-3, 2e-3),
)


def calibrate(engine: KnownEngine, seconds: float = 10.0) -> EngineProfile:
    return profile_engine(
        engine,
        engine.facts,
        CONFIG,
        model="known",
        budget_seconds=seconds,
        progress=lambda _stage, _fraction: None,
        clock=engine.clock.now,
    )


def draw_errors(model: StepTimeModel, known: StepTimeModel) -> list[float]:
    """Errors over loads that were not measured, within the range of those that were, in order."""
    rng = random.Random(3)
    errors = []
    for _ in range(300):
        kind = rng.choice(("decode", "prompt", "mixed"))
        decodes = 0 if kind == "prompt" else rng.randint(1, 64)
        context = decodes * round(2 ** rng.uniform(5, 11.9))
        context = min(context, model.limits.context_tokens)
        prompt = 0 if kind == "decode" else round(2 ** rng.uniform(4, 10.9))
        work = (decodes, context, prompt, count_pairs(0, prompt))
        errors.append(abs(model.predict(*work) / known.predict(*work) - 1))
    return sorted(errors)


@pytest.mark.parametrize("known", [truth(), GRAPHS, FEW_TOKENS_ARE_SLOW])
def test_the_step_times_of_an_engine_are_found_out(known: StepTimeModel) -> None:
    errors = draw_errors(calibrate(KnownEngine(known)).step_time, known)
    assert errors[150] < 0.02
    assert errors[285] < 0.08


@pytest.mark.parametrize("seed", range(4))
def test_noise_and_hiccups_change_little(seed: int) -> None:
    profile = calibrate(KnownEngine(GRAPHS, disturb=noisy(seed)))
    errors = draw_errors(profile.step_time, GRAPHS)

    # noise only makes steps longer: by 4 % on average
    assert errors[150] < 0.08
    assert errors[285] < 0.2
    residuals = profile.step_time.residuals
    assert residuals is not None
    assert residuals.p5 < residuals.p50 < residuals.p95


def test_only_the_terms_that_the_engine_has_are_found() -> None:
    plain = calibrate(KnownEngine(truth())).step_time
    assert plain.context_tokens == ()
    assert not plain.has_floor

    graphs = calibrate(KnownEngine(GRAPHS)).step_time
    assert graphs.prompt_floor_seconds == pytest.approx(4e-3, rel=0.1)
    assert graphs.mixed_floor_seconds == pytest.approx(5e-3, rel=0.1)
    assert graphs.predict(1, 64, 0, 0) < 1.2e-3
    assert calibrate(KnownEngine(FEW_TOKENS_ARE_SLOW)).step_time.context_tokens


@pytest.mark.parametrize(("known", "seconds"), [(truth(), 2.0), (GRAPHS, 0.5), (SLOW_CPU, 30.0)])
def test_the_time_is_bounded(known: StepTimeModel, seconds: float) -> None:
    engine = KnownEngine(known)
    profile = calibrate(engine, seconds)

    assert engine.clock.now() <= 1.1 * seconds
    assert len(profile.steps) >= 4
    if known is SLOW_CPU:
        assert profile.step_time.limits.prefill_tokens < 64


def test_blocks_and_rows_are_given_back() -> None:
    engine = KnownEngine()
    calibrate(engine)

    assert engine.most_rows == 64
    assert engine.rows == {}


@pytest.mark.parametrize("fail_at", [1, 4, 5, 6, 40, 41, 43, 44, 45, 200])
def test_rows_are_given_back_when_a_step_fails(fail_at: int) -> None:
    engine = KnownEngine(fail_at=fail_at)
    with pytest.raises(ValueError, match="a step that fails"):
        calibrate(engine)
    assert engine.rows == {}


def test_an_executor_that_cannot_even_end_rows_is_given_up() -> None:
    engine = KnownEngine(fails_to_end=True)
    with pytest.raises(RowsLeftError):
        calibrate(engine)


def test_what_takes_too_long_is_refused_and_says_what_to_do() -> None:
    engine = KnownEngine(truth(compute_seconds=(5.0, 50.0, 500.0)))
    with pytest.raises(CalibrationError, match="raise --calibration-seconds"):
        calibrate(engine, 3.0)
    assert engine.rows == {}
    assert engine.num_steps <= 3


def test_steps_that_no_model_explains_are_refused() -> None:
    engine = KnownEngine(
        disturb=lambda seconds: seconds * 10 ** random.Random(clock()).uniform(0, 2)
    )
    ticks = count()

    def clock() -> int:
        return next(ticks)

    with pytest.raises(CalibrationError, match="busy with something else"):
        calibrate(engine)


@pytest.mark.parametrize("reading", [math.nan, math.inf, 0.0])
def test_a_clock_that_goes_wrong_is_refused(reading: float) -> None:
    engine = KnownEngine()
    rising = count(0.0, 1e-5)
    calls = count()
    with pytest.raises(CalibrationError, match="kinds of steps"):
        measure_steps(
            engine,
            engine.facts,
            max_num_seqs=64,
            max_num_batched_tokens=2048,
            budget_seconds=0.1,
            clock=lambda: reading if next(calls) else next(rising),
            progress=lambda _stage, _fraction: None,
        )
    assert engine.rows == {}


@pytest.mark.parametrize("slowness", [0.5, 1.0, 3.0])
def test_a_few_steps_tell_whether_a_machine_is_as_fast_as_before(slowness: float) -> None:
    profile = calibrate(KnownEngine(GRAPHS))
    again = KnownEngine(GRAPHS, disturb=lambda seconds: seconds * slowness)
    if slowness < 1:
        again.step_time = truth(compute_seconds=(0.5e-3, 0.75e-3, 10e-3))
    ratio = compare_again(again, again.facts, profile.steps, clock=again.clock.now)

    assert (ratio < 0.8, 0.8 < ratio < 1.2, ratio > 1.2).index(True) == (0.5, 1.0, 3.0).index(
        slowness
    )
    assert again.rows == {}
    assert again.num_steps < 30


def test_without_steps_there_is_nothing_to_compare() -> None:
    engine = KnownEngine()
    assert math.isnan(compare_again(engine, engine.facts, (), clock=engine.clock.now))


@pytest.mark.parametrize(("max_model_len", "is_enough"), [(128, True), (32, False)])
def test_an_engine_for_one_short_request(max_model_len: int, is_enough: bool) -> None:
    config = build_config(max_num_seqs=1, max_model_len=max_model_len, num_blocks=8)
    engine = KnownEngine(truth(), config)
    with nullcontext() if is_enough else pytest.raises(CalibrationError, match="holds too little"):
        profile = profile_engine(
            engine,
            engine.facts,
            config,
            model="tiny",
            budget_seconds=1.0,
            progress=lambda _stage, _fraction: None,
            clock=engine.clock.now,
        )
        assert profile.step_time.limits.num_decodes == 1
        assert 64 <= profile.step_time.limits.prefill_tokens < 128


def test_the_prefill_rate_is_that_of_the_fastest_prompt() -> None:
    profile = calibrate(KnownEngine(truth()))
    rate = measure_prefill_rate(profile.steps)

    assert rate is not None
    assert rate == pytest.approx(2048 / 24e-3, rel=0.2)
    assert measure_prefill_rate(()) is None
