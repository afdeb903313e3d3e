import json
import math
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire_engine.errors import ConfigError
from quire_engine.profiles.step_time import (
    ResidualQuantiles,
    StepLimits,
    StepTimeModel,
    constant_step_time,
    count_pairs,
    load_step_time,
    save_step_time,
)


def build_model(**changes: Any) -> StepTimeModel:
    fields: dict[str, Any] = {
        "source": "a test",
        "compute_tokens": (1, 64, 256),
        "compute_seconds": (0.006, 0.007, 0.015),
        "seconds_per_sequence": 1e-5,
        "seconds_per_context_token": 4e-8,
        "seconds_per_pair": 1e-9,
        "floor_seconds": 0.0025,
        "fit_error": 0.03,
        "limits": StepLimits(num_decodes=256, context_tokens=400_000, prefill_tokens=2048),
    }
    return StepTimeModel(**(fields | changes))


def test_each_term_adds_its_share() -> None:
    model = build_model()
    assert model.predict(1, 0) == pytest.approx(0.006 + 1e-5)
    assert model.predict(64, 100_000) == pytest.approx(0.007 + 64e-5 + 0.004)
    assert model.predict(0, 0, 256, 1_000_000) == pytest.approx(0.015 + 0.001)


def test_between_knots_it_interpolates_and_beyond_it_follows_the_last_slope() -> None:
    model = build_model(seconds_per_sequence=0.0)
    assert model.predict(160, 0) == pytest.approx(0.011)
    assert model.predict(256 + 192, 0) == pytest.approx(0.015 + 0.008)
    assert model.predict(0, 0) == 0.006


def test_no_step_is_shorter_than_the_floor() -> None:
    assert build_model(floor_seconds=0.02).predict(1, 100) == 0.02


@settings(deadline=None)  # a busy machine may stop anywhere
@given(st.integers(1, 300), st.integers(0, 500_000), st.sampled_from([0.0, 0.0025, 0.02]))
def test_decodes_that_go_on_take_what_each_step_takes_alone(
    num_decodes: int, context_tokens: int, floor_seconds: float
) -> None:
    model = build_model(floor_seconds=floor_seconds)
    alone = [model.predict(num_decodes, context_tokens + n * num_decodes) for n in range(50)]
    assert list(islice(model.predict_decodes(num_decodes, context_tokens), 50)) == alone


def test_it_knows_where_its_samples_end() -> None:
    model = build_model()
    assert model.covers(256, 400_000, 2048)
    assert not model.covers(257, 0)
    assert not model.covers(1, 400_001)
    assert not model.covers(1, 1, 2049)


work = st.tuples(
    st.integers(0, 2048), st.integers(0, 10**7), st.integers(0, 32768), st.integers(0, 10**9)
)
slopes = st.floats(0, 1e-3)


@given(
    work=work,
    more=work,
    rises=st.lists(st.floats(0, 0.1), min_size=2, max_size=12),
    steps=st.lists(st.integers(1, 5000), min_size=12, max_size=12),
    coefficients=st.tuples(slopes, slopes, slopes, st.floats(0, 0.1)),
)
def test_more_work_never_takes_less_time(
    work: tuple[int, int, int, int],
    more: tuple[int, int, int, int],
    rises: list[float],
    steps: list[int],
    coefficients: tuple[float, float, float, float],
) -> None:
    per_sequence, per_context, per_pair, floor = coefficients
    model = build_model(
        compute_tokens=tuple(sum(steps[: i + 1]) for i in range(len(rises))),
        compute_seconds=tuple(sum(rises[: i + 1]) for i in range(len(rises))),
        seconds_per_sequence=per_sequence,
        seconds_per_context_token=per_context,
        seconds_per_pair=per_pair,
        floor_seconds=floor,
    )
    larger = [a + b for a, b in zip(work, more, strict=True)]
    # floating-point sums may differ in their last bits
    assert model.predict(*larger) >= model.predict(*work) * (1 - 1e-12)


@pytest.mark.parametrize("start", [0, 5, 100])
@pytest.mark.parametrize("num_tokens", [1, 7])
def test_pairs_are_those_under_the_causal_mask(start: int, num_tokens: int) -> None:
    attended = [position + 1 for position in range(start, start + num_tokens)]
    assert count_pairs(start, num_tokens) == sum(attended)


def test_a_prompt_has_the_same_pairs_whole_and_in_chunks() -> None:
    chunks = [(0, 100), (100, 33), (133, 67)]
    assert sum(count_pairs(*chunk) for chunk in chunks) == count_pairs(0, 200)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"seconds_per_context_token": math.nan}, "seconds_per_context_token must be finite"),
        ({"seconds_per_pair": -1e-9}, "seconds_per_pair .* not negative"),
        ({"floor_seconds": math.inf}, "floor_seconds must be finite"),
        ({"fit_error": math.nan}, "fit_error"),
        ({"compute_seconds": (0.006, math.nan, 0.015)}, "compute_seconds must be finite"),
        ({"compute_seconds": (0.006, 0.005, 0.015)}, "must not fall"),
        ({"compute_tokens": (1, 64, 64)}, "must rise"),
        ({"compute_tokens": (0, 64, 256)}, "from at least 1"),
        ({"compute_tokens": (1, 64)}, "same number of knots"),
        ({"compute_tokens": (1,), "compute_seconds": (0.1,)}, "at least 2"),
        (
            {"limits": StepLimits(num_decodes=-1, context_tokens=1, prefill_tokens=1)},
            "limits must not be negative",
        ),
    ],
)
def test_impossible_coefficients_are_refused(field: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_model(**field)


def test_a_model_survives_saving_and_loading() -> None:
    model = build_model()
    assert load_step_time(save_step_time(model)) == model


def test_a_constant_model_covers_anything() -> None:
    model = constant_step_time(0.25)
    assert model.predict(1000, 10**9, 10**6, 10**12) == 0.25
    assert model.covers(10**6, 10**12, 10**9)
    assert load_step_time(save_step_time(model)) == model
    with pytest.raises(ConfigError, match="seconds of a step"):
        constant_step_time(math.nan)


def saved_with(**changes: Any) -> str:
    return json.dumps(json.loads(save_step_time(build_model())) | changes)


def test_fields_of_a_later_version_are_ignored() -> None:
    assert load_step_time(saved_with(colour="blue")) == build_model()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "truncated"),
        ("{}", "schema_version"),
        ("[]", "Expected `object`"),
        (saved_with(schema_version=2, limits="new"), "schema_version 2 is not supported"),
        (saved_with(floor_seconds="fast"), "floor_seconds"),
        (saved_with(seconds_per_pair=-1), "not negative"),
    ],
)
def test_what_is_no_model_is_refused(data: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_step_time(data)


def test_prompts_have_a_constant_and_floors_of_their_own() -> None:
    model = build_model(
        floor_seconds=0.0, prompt_seconds=0.5, prompt_floor_seconds=2000.0, mixed_floor_seconds=3000
    )
    plain = build_model(floor_seconds=0.0)

    assert model.predict(4, 100) == plain.predict(4, 100)
    assert model.predict(0, 0, 8, 36) == 2000
    assert model.predict(4, 100, 8, 36) == 3000
    unbounded = build_model(floor_seconds=0.0, prompt_seconds=0.5)
    assert unbounded.predict(4, 100, 8, 36) == pytest.approx(plain.predict(4, 100, 8, 36) + 0.5)
    assert model.has_floor
    assert not plain.has_floor


def test_context_costs_what_its_curve_and_its_rate_say() -> None:
    curve = {"context_tokens": (0, 100, 300), "context_seconds": (0.0, 2.0, 3.0)}
    model, plain = build_model(**curve), build_model()

    for context, extra in ((0, 0.0), (50, 1.0), (100, 2.0), (200, 2.5), (500, 4.0)):
        assert model.predict(1, context) == pytest.approx(plain.predict(1, context) + extra)
    steps = list(islice(model.predict_decodes(2, 90), 5))
    assert steps == [model.predict(2, 90 + 2 * i) for i in range(5)]
    assert load_step_time(save_step_time(model)) == model


@pytest.mark.parametrize(
    "changes",
    [
        {"context_tokens": (0, 10)},
        {"context_tokens": (0, 10), "context_seconds": (2.0, 1.0)},
        {"context_tokens": (-1, 10), "context_seconds": (0.0, 1.0)},
        {"prompt_seconds": math.nan},
        {"mixed_floor_seconds": -1.0},
        {"mixed_seconds": -1.0},
        {"padded_tokens": (64, 64)},
        {"padded_tokens": (0, 64)},
        {"residuals": ResidualQuantiles(p5=0.0, p50=math.inf, p95=0.0)},
    ],
)
def test_impossible_terms_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="step-time model"):
        build_model(**changes)


def test_steps_that_run_from_a_graph_have_no_floor_of_the_hosts() -> None:
    model = build_model(padded_tokens=(64, 256), prompt_floor_seconds=9.0, mixed_floor_seconds=12.0)
    assert model.predict(0, 0, 250) < 9.0
    assert model.predict(6, 60, 250) < 9.0
    assert model.predict(0, 0, 257) == 9.0
    assert model.predict(6, 60, 251) == 12.0
    assert model.predict(7, 70) < 9.0


def test_steps_with_prompts_take_what_they_are_padded_to() -> None:
    model = build_model(padded_tokens=(64, 256), mixed_seconds=0.5)

    for tokens in (1, 63):
        assert model.predict(0, 0, tokens) == model.predict(0, 0, 64)
    assert model.predict(0, 0, 65) == model.predict(0, 0, 256)
    assert model.predict(0, 0, 300) == build_model().predict(0, 0, 300)
    assert model.predict(3, 30) == build_model().predict(3, 30)
    assert model.predict(3, 30, 2) == pytest.approx(build_model().predict(3, 30, 61) + 0.5)
    assert load_step_time(save_step_time(model)) == model
