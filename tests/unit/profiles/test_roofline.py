"""The estimate against figures measured on one H100 with another engine (vLLM 0.23)."""

import pytest

from quire_engine.profiles.gpus import GPUS, find_gpu
from quire_engine.profiles.roofline import estimate_step_time
from quire_engine.profiles.shapes import SHAPES, ModelShape, find_shape
from quire_engine.profiles.step_time import StepTimeModel, count_pairs

H100 = find_gpu("h100")
LLAMA = estimate_step_time(H100, find_shape("llama3-8b"))
QWEN = estimate_step_time(H100, find_shape("qwen3-0.6b"))

PROMPTS_PER_STEP_TOKENS = 8192


def output_tokens_per_second(
    model: StepTimeModel, num_requests: int, prompt: int, output: int
) -> float:
    """A batch that starts together: all prompts first, then decodes in step."""
    at_once = PROMPTS_PER_STEP_TOKENS // prompt
    pairs = at_once * count_pairs(0, prompt)
    seconds = num_requests / at_once * model.predict(0, 0, at_once * prompt, pairs)
    for step in range(1, output):
        seconds += model.predict(num_requests, num_requests * (prompt + step))
    return num_requests * output / seconds


@pytest.mark.parametrize(
    ("model", "num_requests", "prompt", "output", "measured"),
    [
        (LLAMA, 1, 128, 256, 153.5),
        (LLAMA, 256, 512, 128, 6501),
        (LLAMA, 64, 1024, 256, 3975),
        (QWEN, 1, 128, 256, 400),
        (QWEN, 256, 512, 128, 22345),
        (QWEN, 64, 1024, 256, 11787),
    ],
)
def test_throughput_is_near_what_was_measured(
    model: StepTimeModel, num_requests: int, prompt: int, output: int, measured: float
) -> None:
    predicted = output_tokens_per_second(model, num_requests, prompt, output)
    assert predicted == pytest.approx(measured, rel=0.05)


def test_inter_token_latency_is_the_published_line() -> None:
    """6.44 ms + 4.37e-5 ms per context token."""
    for context_tokens in (1, 1000, 8000):
        published = 6.44e-3 + 4.37e-8 * context_tokens
        assert LLAMA.predict(1, context_tokens) == pytest.approx(published, rel=0.01)


def test_a_prompt_takes_what_was_measured() -> None:
    assert LLAMA.predict(0, 0, 2048, count_pairs(0, 2048)) == pytest.approx(0.048, rel=0.05)


def test_int4_saves_bandwidth_but_no_compute() -> None:
    llama = find_shape("llama3-8b")
    int4 = estimate_step_time(H100, llama, quantization="int4")
    assert int4.predict(1, 100) < 0.6 * LLAMA.predict(1, 100)
    assert int4.predict(0, 0, 8192) == pytest.approx(LLAMA.predict(0, 0, 8192), rel=0.02)


def test_float32_is_slower_everywhere() -> None:
    float32 = estimate_step_time(H100, find_shape("llama3-8b"), dtype="float32")
    assert float32.predict(1, 100) > 1.5 * LLAMA.predict(1, 100)
    assert float32.predict(0, 0, 8192) > 1.5 * LLAMA.predict(0, 0, 8192)


_FAMILIES = (
    ("l4", "l40s"),
    ("a10g", "a10"),
    ("a100-40", "a100-80"),
    ("a100-80", "h100"),
    ("h100-pcie", "h100-nvl"),
    ("h100-nvl", "h200-nvl"),
    ("h100", "h200"),
    ("h200", "b200"),
)
"""The slower and the faster one."""


@pytest.mark.parametrize("shape", SHAPES.values(), ids=lambda shape: shape.name)
def test_better_cards_of_a_family_are_never_slower(shape: ModelShape) -> None:
    for worse, better in _FAMILIES:
        slow = estimate_step_time(GPUS[worse], shape)
        fast = estimate_step_time(GPUS[better], shape)
        for work in ((1, 500), (128, 100_000), (0, 0, 4096, count_pairs(0, 4096))):
            assert fast.predict(*work) <= slow.predict(*work)


def test_an_estimate_admits_to_be_one() -> None:
    assert LLAMA.fit_error >= 0.1
    assert "roofline" in LLAMA.source
    assert not LLAMA.covers(1, 10**9)
