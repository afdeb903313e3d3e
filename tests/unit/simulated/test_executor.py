import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire_engine.config import EngineConfig
from quire_engine.errors import CapacityError, ConfigError
from quire_engine.execution.base import AppendedBlocks
from quire_engine.execution.clocks import RealClock, VirtualClock
from quire_engine.execution.simulated import SimulatedExecutor
from quire_engine.profiles.step_time import count_pairs
from tests.unit.simulated.builders import (
    batch,
    build_config,
    build_executor,
    generate_alone,
    start,
)

PROMPT = list(range(100, 120))
BLOCKS = [3, 4, 5]


def test_facts_come_from_the_gpu_and_the_shape() -> None:
    facts = SimulatedExecutor(build_config()).allocate_cache()
    assert facts.max_model_len == 8192
    assert facts.vocab_size == 128256
    assert facts.block_size == 16
    assert 25_000 < facts.num_blocks < 30_000


def test_facts_come_from_the_configuration_where_it_says_so() -> None:
    facts = SimulatedExecutor(build_config(max_model_len=512, num_blocks=64)).allocate_cache()
    assert (facts.max_model_len, facts.num_blocks) == (512, 64)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (build_config(gpu=None), "needs --simulate"),
        (build_config(shape=None), "needs --model-shape: one of .*llama3-8b"),
        (build_config(gpu="h1000"), "unknown GPU 'h1000'"),
        (build_config(shape="llama9"), "unknown model shape 'llama9'"),
        (
            build_config(max_model_len=9000),
            "max_model_len 9000 exceeds the 8192 tokens of llama3-8b: lower it",
        ),
        (build_config(step_seconds=float("nan")), "finite"),
        (build_config(step_seconds=-1.0), "not negative"),
    ],
)
def test_impossible_configurations_are_refused(config: EngineConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SimulatedExecutor(config)


def test_a_cache_too_small_for_one_request_is_refused_with_what_would_fit() -> None:
    with pytest.raises(CapacityError, match="lower max_model_len to 1024"):
        SimulatedExecutor(build_config(num_blocks=64)).allocate_cache()


def test_a_model_too_large_for_the_gpu_is_refused() -> None:
    with pytest.raises(CapacityError, match="llama3-8b does not fit t4"):
        SimulatedExecutor(build_config(gpu="t4")).allocate_cache()


def test_output_is_readable_words() -> None:
    text = bytes(generate_alone(build_executor(), start(0, PROMPT, BLOCKS), 24)).decode()
    first, second, third, rest = text.split(" ")
    assert rest == ""
    assert all(len(word) == 7 and word.isalpha() and word.islower() for word in text.split())
    assert len({first, second, third}) > 1


def test_output_depends_on_prompt_and_seed() -> None:
    executor = build_executor()
    base = generate_alone(executor, start(0, PROMPT, BLOCKS), 20)
    assert generate_alone(executor, start(1, PROMPT, BLOCKS), 20) == base
    assert generate_alone(executor, start(0, [*PROMPT, 9], BLOCKS), 20) != base
    assert generate_alone(executor, start(0, PROMPT, BLOCKS, seed=7), 20) != base
    assert generate_alone(executor, start(0, PROMPT, BLOCKS, seed=-1), 20) != base


def test_a_preempted_request_goes_on_with_the_same_words() -> None:
    executor = build_executor()
    expected = generate_alone(executor, start(0, PROMPT, BLOCKS), 12)
    known = PROMPT + expected[:5]
    again = start(2, known, [7, 8, 9], num_prompt_tokens=len(PROMPT))
    result = executor.run(batch((2, 0, len(known), True), started=[again]))
    assert result.token_ids == expected[5:6]


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    chunk=st.integers(1, 40),
    num_tokens=st.integers(1, 12),
)
def test_output_does_not_depend_on_the_rest_of_the_batch(
    lengths: list[int], chunk: int, num_tokens: int
) -> None:
    prompts = [[row * 1000 + i for i in range(length)] for row, length in enumerate(lengths)]
    rows = [start(r, p, list(range(8 * r + 1, 8 * r + 8))) for r, p in enumerate(prompts)]
    alone = build_executor()
    expected = {row.row: generate_alone(alone, row, num_tokens) for row in rows}
    together = build_executor()
    outputs: dict[int, list[int]] = {row.row: [] for row in rows}
    computed = dict.fromkeys(outputs, 0)
    together.run(batch(started=rows))
    while any(len(output) < num_tokens for output in outputs.values()):
        chunks = []
        for row, done in computed.items():
            known = lengths[row] + len(outputs[row])
            count = min(chunk, known - done)
            chunks.append((row, done, count, done + count == known))
        sampled = iter(together.run(batch(*chunks)).token_ids)
        for row, done, count, samples in chunks:
            computed[row] = done + count
            if samples:
                outputs[row].append(next(sampled))
    assert {row: output[:num_tokens] for row, output in outputs.items()} == expected


def test_virtual_time_passes_as_the_model_says() -> None:
    clock = VirtualClock()
    executor = build_executor(clock=clock)
    executor.run(batch((0, 0, 20, True), started=[start(0, PROMPT, BLOCKS)]))
    prompt_seconds = executor.step_time.predict(0, 0, 20, count_pairs(0, 20))
    assert clock.now() == pytest.approx(prompt_seconds)
    late = start(1, PROMPT, [8, 9])
    executor.run(batch((0, 20, 1, True), (1, 0, 16, False), started=[late], num_decodes=1))
    mixed_seconds = executor.step_time.predict(1, 21, 16, count_pairs(0, 16))
    assert clock.now() == pytest.approx(prompt_seconds + mixed_seconds)


def test_a_batch_without_work_takes_no_time() -> None:
    clock = VirtualClock()
    executor = build_executor(clock=clock)
    executor.run(batch(started=[start(0, PROMPT, BLOCKS)]))
    executor.run(batch(ended=[0]))
    assert clock.now() == 0.0


def test_a_fixed_step_time_wins() -> None:
    clock = VirtualClock()
    executor = build_executor(build_config(step_seconds=0.25), clock=clock)
    generate_alone(executor, start(0, PROMPT, BLOCKS), 4)
    assert clock.now() == pytest.approx(1.0)


class BrokenClock:
    def now(self) -> float:
        pytest.fail("the clock was read")

    def sleep_until(self, deadline: float) -> None:
        pytest.fail("the clock was asked to wait")


def test_with_a_step_time_of_zero_no_clock_is_read() -> None:
    executor = build_executor(build_config(step_seconds=0.0), clock=BrokenClock())
    assert len(generate_alone(executor, start(0, PROMPT, BLOCKS), 4)) == 4


def test_real_time_passes_on_the_real_clock() -> None:
    executor = build_executor(build_config(step_seconds=0.03), clock=RealClock())
    began = time.monotonic()
    generate_alone(executor, start(0, PROMPT, BLOCKS), 2)
    assert time.monotonic() - began >= 0.06


def test_a_virtual_clock_never_goes_back() -> None:
    clock = VirtualClock(5.0)
    clock.sleep_until(3.0)
    assert clock.now() == 5.0
    with pytest.raises(ValueError, match="NaN"):
        clock.sleep_until(float("nan"))


def test_closing_twice_is_safe() -> None:
    executor = build_executor()
    executor.close()
    executor.close()


def test_a_decode_grows_into_appended_blocks() -> None:
    executor = build_executor()
    executor.run(batch((0, 0, 16, True), started=[start(0, PROMPT[:16], [3])]))
    more = [AppendedBlocks(0, 1, [4])]
    assert executor.run(batch((0, 16, 1, True), appended=more, num_decodes=1)).token_ids


def test_simulating_never_imports_torch() -> None:
    code = (
        "import sys, quire_engine.execution.simulated, quire_engine.profiles.traffic\n"
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    engine = Path(__file__).parents[3] / "engine"
    done = subprocess.run([sys.executable, "-c", code], cwd=engine, check=False)
    assert done.returncode == 0
