import math
import random
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from quire_engine.profiles.gpus import find_gpu
from quire_engine.profiles.roofline import estimate_step_time
from quire_engine.profiles.shapes import find_shape
from quire_engine.profiles.step_time import (
    ResidualQuantiles,
    StepLimits,
    StepTimeModel,
    constant_step_time,
    count_pairs,
    load_step_time,
    save_step_time,
)
from quire_engine.profiles.step_time_evidence import MAX_CELLS, StepEvidence
from quire_engine.profiles.step_time_fit import MIN_OBSERVATIONS, StepTimeFitter

Work = tuple[int, int, int, int]
Draw = Callable[[random.Random], Work]


def roofline(shape: str, gpu: str) -> StepTimeModel:
    return estimate_step_time(find_gpu(gpu), find_shape(shape))


def mixed(rng: random.Random) -> Work:
    """Decodes, prompts, or both: up to 256 sequences, contexts to 2,048, chunks to 4,096."""
    decodes = context = prefills = pairs = 0
    kind = rng.random()
    if kind < 0.75:
        decodes = round(2 ** rng.uniform(0, 8))
        context = int(decodes * 2 ** rng.uniform(5, 11))
    if kind > 0.6:
        prefills = round(2 ** rng.uniform(0, 12))
        pairs = count_pairs(rng.choice((0, 0, 512, 2048)), prefills)
    return decodes, context, prefills, pairs


def batch_1(rng: random.Random) -> Work:
    return 1, rng.randint(1, 4096), 0, 0


def decodes_alone(rng: random.Random) -> Work:
    decodes = rng.randint(1, 256)
    return decodes, decodes * rng.randint(32, 2048), 0, 0


def prompts_alone(rng: random.Random) -> Work:
    tokens = rng.randint(1, 2048)
    return 0, 0, tokens, count_pairs(0, tokens)


def serve(
    fitter: StepTimeFitter,
    truth: StepTimeModel,
    num_steps: int,
    *,
    draw: Draw = mixed,
    noise: float = 0.1,
    hiccups: float = 0.01,
    slowness: float = 1.0,
    seed: int = 1,
) -> StepTimeModel:
    """Run steps as an engine does; now and then one takes 2 s more."""
    rng = random.Random(seed)
    for _ in range(num_steps):
        work = draw(rng)
        seconds = truth.predict(*work) * slowness * max(rng.gauss(1, noise), 0.2)
        fitter.observe(*work, seconds + (2.0 if rng.random() < hiccups else 0.0))
        model = fitter.model()
    assert model is not None
    return model


def errors(
    model: StepTimeModel, truth: StepTimeModel, *, draw: Draw = mixed, slowness: float = 1.0
) -> tuple[float, float]:
    """Median and 95th percentile of relative errors on loads that were not observed."""
    rng = random.Random(99)
    sizes = []
    for _ in range(400):
        work = draw(rng)
        sizes.append(abs(model.predict(*work) / (truth.predict(*work) * slowness) - 1))
    sizes.sort()
    return sizes[200], sizes[380]


@pytest.mark.parametrize(
    ("shape", "gpu"),
    [
        ("llama3-8b", "l4"),
        ("llama3-8b", "h100"),
        ("qwen3-0.6b", "a100-80"),
        ("qwen3-0.6b", "h100"),
        ("qwen3-32b", "h200"),
        ("smollm2-135m", "t4"),
    ],
)
def test_a_known_device_is_recovered_from_noisy_steps(shape: str, gpu: str) -> None:
    truth = roofline(shape, gpu)
    model = serve(StepTimeFitter(), truth, 2000)
    median, tail = errors(model, truth)
    assert median < 0.05
    assert tail < 0.15
    assert 0.15 < model.fit_error < 0.4  # the noise itself is 0.2 at its 95th percentile


def test_it_is_near_the_truth_after_300_steps() -> None:
    truth = roofline("llama3-8b", "h100")
    median, tail = errors(serve(StepTimeFitter(), truth, 300), truth)
    assert median < 0.05
    assert tail < 0.15


def test_steps_without_noise_leave_hardly_an_error() -> None:
    truth = roofline("llama3-8b", "a100-80")
    model = serve(StepTimeFitter(), truth, 1500, noise=0, hiccups=0)
    median, tail = errors(model, truth)
    assert median < 0.01
    assert tail < 0.04
    assert model.fit_error < 0.05


@pytest.mark.parametrize("slowness", [1.5, 0.6])
def test_a_device_that_changes_its_speed_is_followed_within_500_steps(slowness: float) -> None:
    truth = roofline("llama3-8b", "h100")
    fitter = StepTimeFitter()
    serve(fitter, truth, 2050)
    model = serve(fitter, truth, 500, slowness=slowness, seed=2)
    median, tail = errors(model, truth, slowness=slowness)
    assert median < 0.05
    assert tail < 0.15


def test_one_hiccup_in_ten_changes_nothing() -> None:
    truth = constant_step_time(0.01)
    model = serve(StepTimeFitter(), truth, 1000, draw=batch_1, noise=0.02, hiccups=0.1)
    assert model.predict(1, 2000) == pytest.approx(0.01, rel=0.03)


def test_a_first_long_prompt_that_waits_for_a_compiler_is_not_believed() -> None:
    truth = roofline("llama3-8b", "h100")
    fitter = StepTimeFitter()
    fitter.observe(0, 0, 4096, count_pairs(0, 4096), 45.0)
    model = serve(fitter, truth, 200, draw=decodes_alone, hiccups=0)
    assert model.predict(256, 256 * 1000) < 0.05
    assert model.predict(0, 0, 4096, count_pairs(0, 4096)) < 2.0
    assert model.limits.prefill_tokens == 0


@pytest.mark.parametrize("draw", [batch_1, decodes_alone, prompts_alone])
def test_evidence_of_one_kind_is_enough_for_that_kind(draw: Draw) -> None:
    truth = roofline("llama3-8b", "l4")
    model = serve(StepTimeFitter(), truth, 600, draw=draw)
    median, tail = errors(model, truth, draw=draw)
    assert median < 0.05
    assert tail < 0.15
    assert math.isfinite(model.predict(1000, 10**7, 10**5, 10**9))


def test_the_limits_are_what_was_observed() -> None:
    fitter = StepTimeFitter()
    for _ in range(20):
        fitter.observe(8, 4000, 0, 0, 0.01)
        fitter.observe(2, 900, 256, 32_896, 0.02)
    model = fitter.model()
    assert model is not None
    assert model.limits == StepLimits(num_decodes=8, context_tokens=4000, prefill_tokens=256)
    assert load_step_time(save_step_time(model)) == model


def test_there_is_no_model_before_there_is_evidence() -> None:
    fitter = StepTimeFitter()
    for step in range(MIN_OBSERVATIONS):
        assert fitter.model() is None
        fitter.observe(1, step, 0, 0, 0.01)
    assert fitter.model() is not None


def test_between_two_fits_the_model_is_the_same_object() -> None:
    truth = constant_step_time(0.01)
    fitter = StepTimeFitter(refit_every=50)
    model = serve(fitter, truth, 500, draw=batch_1)
    fitter.observe(1, 10, 0, 0, 0.01)
    assert fitter.model() is model
    assert serve(fitter, truth, 50, draw=batch_1) is not model


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf, -math.inf, 1e-12, 1e9])
def test_seconds_that_no_step_takes_are_dropped_and_counted(seconds: float) -> None:
    fitter = StepTimeFitter()
    fitter.observe(1, 10, 0, 0, seconds)
    assert (fitter.num_observed, fitter.num_dropped) == (0, 1)


@pytest.mark.parametrize("work", [(0, 0, 0, 0), (-1, 0, 5, 0), (1, -1, 0, 0), (1, 10**400, 0, 0)])
def test_work_that_no_step_has_is_dropped_and_counted(work: Work) -> None:
    fitter = StepTimeFitter()
    fitter.observe(*work, 0.01)
    assert (fitter.num_observed, fitter.num_dropped) == (0, 1)


def test_a_fitter_without_fading_or_fits_is_refused() -> None:
    with pytest.raises(ValueError, match="half_life 0"):
        StepTimeFitter(half_life=0)
    with pytest.raises(ValueError, match="refit_every 0"):
        StepTimeFitter(refit_every=0)


def test_a_profile_is_believed_until_steps_were_observed() -> None:
    profile = roofline("llama3-8b", "h100")
    assert StepTimeFitter(profile).model() is profile


def test_a_profile_fills_in_what_was_not_observed_at_the_speed_that_was() -> None:
    profile = roofline("llama3-8b", "h100")
    model = serve(StepTimeFitter(profile), profile, 1500, draw=decodes_alone, slowness=2.0)
    prompt = (0, 0, 2048, count_pairs(0, 2048))
    assert model.predict(*prompt) == pytest.approx(2 * profile.predict(*prompt), rel=0.15)
    assert model.covers(1, 1, profile.limits.prefill_tokens)


@pytest.mark.parametrize("profile", [roofline("llama3-8b", "t4"), constant_step_time(0.0)])
def test_a_profile_of_another_device_is_unlearnt(profile: StepTimeModel) -> None:
    truth = roofline("llama3-8b", "h100")
    median, tail = errors(serve(StepTimeFitter(profile), truth, 2000), truth)
    assert median < 0.05
    assert tail < 0.15


def test_memory_is_bounded_and_what_was_seen_last_is_kept() -> None:
    evidence = StepEvidence()
    for decodes in range(1, 400):
        for _ in range(2):
            evidence.add(decodes, decodes**4, decodes**2, decodes**5, 0.01)
    points = evidence.points()
    for exponent in range(200):
        work = 1 << (exponent % 40)
        evidence.add(1 + work, 1 << (exponent % 37), 0, 1 << (exponent % 11), 0.01)
    assert len(evidence.points()) <= MAX_CELLS
    assert max(point.newest for point in points) == 2 * 399


size = st.integers(0, 300) | st.integers(0, 10**6) | st.integers(-5, 1 << 60)
seconds_of_a_step = st.floats(1e-3, 0.1) | st.floats(1e-9, 1e5) | st.floats()
step = st.tuples(size, size, size, size, seconds_of_a_step)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(step, min_size=8, max_size=60),
    work=st.tuples(*[st.integers(0, 10**6)] * 4),
    more=st.tuples(*[st.integers(0, 10**6)] * 4),
    has_prior=st.booleans(),
)
def test_whatever_is_observed_predictions_are_finite_and_rise_with_work(
    steps: list[tuple[int, int, int, int, float]], work: Work, more: Work, has_prior: bool
) -> None:
    fitter = StepTimeFitter(roofline("qwen3-0.6b", "l4") if has_prior else None, refit_every=10)
    for observed in steps * 4:
        fitter.observe(*observed)
        model = fitter.model()
        if model is None:
            continue
        sooner = model.predict(*work)
        later = model.predict(*(a + b for a, b in zip(work, more, strict=True)))
        assert math.isfinite(later)
        assert 0 <= sooner <= later * (1 + 1e-12)
    assert fitter.num_observed + fitter.num_dropped == 4 * len(steps)


def test_it_costs_little() -> None:
    """Orders of magnitude only: machines that run tests are busy."""
    rng = random.Random(1)
    work = [mixed(rng) for _ in range(128)]
    fitter = StepTimeFitter()
    to_observe, to_fit = [], []
    for _ in range(40):
        begin = time.process_time()
        for load in work:
            fitter.observe(*load, 0.01)
        middle = time.process_time()
        fitter.model()
        to_observe.append((middle - begin) / len(work))
        to_fit.append(time.process_time() - middle)
    assert min(to_observe) < 10e-6
    assert sorted(to_fit)[10] < 20e-3


def test_what_was_measured_before_is_not_bent_by_steps_of_one_kind() -> None:
    truth = roofline("qwen3-0.6b", "h100")
    launches = {"prompt_floor_seconds": 9e-3, "mixed_floor_seconds": 10e-3}
    residuals = ResidualQuantiles(p5=0.0, p50=0.0, p95=0.0)
    measured = replace(truth, residuals=residuals, **launches)
    # steps of requests take a tenth longer than those that were measured
    model = serve(StepTimeFitter(measured), truth, 3000, draw=decodes_alone, slowness=1.1)

    assert model.predict(0, 0, 64, 2080) == pytest.approx(9.9e-3, rel=0.1)
    assert model.predict(16, 8000, 64, 2080) == pytest.approx(11e-3, rel=0.1)
    assert model.predict(0, 0, 8192, 8192**2 // 2) == pytest.approx(
        1.1 * truth.predict(0, 0, 8192, 8192**2 // 2), rel=0.1
    )


def test_a_device_that_pads_is_learnt_at_its_stairs() -> None:
    padded = (64, 128, 256, 512)
    prior = StepTimeModel(
        source="a start",
        compute_tokens=(1, 512),
        compute_seconds=(0.001, 0.010),
        padded_tokens=padded,
        limits=StepLimits(num_decodes=1, context_tokens=1, prefill_tokens=512),
    )
    fitter = StepTimeFitter(prior)
    for index in range(600):
        tokens = 1 + index * 37 % 512
        fitter.observe(0, 0, tokens, 0, 2 * prior.predict(0, 0, tokens))

    model = fitter.model()
    assert model is not None
    assert model.padded_tokens == padded
    for tokens in (2, 60, 70, 130, 250, 500):
        assert model.predict(0, 0, tokens) == pytest.approx(2 * prior.predict(0, 0, tokens), 0.02)
