"""Each rule of the executor's contract, broken once."""

import random
from collections.abc import Callable

import pytest

from quire_engine.core.engine import EngineCore
from quire_engine.execution.base import AppendedBlocks, Batch
from quire_engine.execution.simulated import SimulatedExecutor
from quire_engine.protocol.messages import AddRequest
from quire_engine.protocol.sampling import SamplingParams
from tests.unit.simulated.builders import batch, build_config, build_executor, start

PROMPT = list(range(40))
SHARED = PROMPT[:32]


def with_one_running() -> SimulatedExecutor:
    """Row 0 has computed its 40 tokens in blocks 1, 2 and 3, and sampled one."""
    executor = build_executor(build_config(max_model_len=512, num_blocks=32))
    executor.run(batch((0, 0, 40, True), started=[start(0, PROMPT, [1, 2, 3])]))
    return executor


def prompt_in(row: int, block_ids: list[int], tokens: list[int] = PROMPT) -> Batch:
    return batch((row, 0, len(tokens), True), started=[start(row, tokens, block_ids)])


def hit_in(row: int, block_ids: list[int], tokens: list[int], found: int) -> Batch:
    return batch((row, found, len(tokens) - found, True), started=[start(row, tokens, block_ids)])


BROKEN: dict[str, tuple[Callable[[], Batch], str]] = {
    "a row not started": (lambda: batch((5, 0, 1, True)), "row 5 was not started"),
    "a row ended but never started": (lambda: batch(ended=[5]), "row 5 ends but"),
    "a row started twice": (lambda: prompt_in(0, [4, 5, 6]), "row 0 is started while in use"),
    "a row that does not exist": (lambda: prompt_in(16, [4, 5, 6]), "or does not exist"),
    "the null block in a table": (lambda: prompt_in(1, [0, 5, 6]), "block 0 in the table"),
    "a block that does not exist": (lambda: prompt_in(1, [4, 5, 33]), "block 33 in the table"),
    "a block twice in a table": (lambda: prompt_in(1, [4, 5, 4]), "twice in the table"),
    "a table too short": (lambda: prompt_in(1, [4, 5]), "no block for position 39"),
    "a block of another row written": (lambda: prompt_in(1, [4, 2, 6]), "writes block 2"),
    "a gap": (lambda: batch((0, 41, 1, True), num_decodes=1), "computes 41 to 42"),
    "a step back": (lambda: batch((0, 39, 2, True)), "goes on at 39, not 40"),
    "no sampling at the newest token": (lambda: batch((0, 40, 1, False)), "samples: False"),
    "sampling before the newest token": (
        lambda: batch((1, 0, 20, True), started=[start(1, PROMPT, [4, 5, 6])]),
        "samples: True",
    ),
    "an empty chunk": (lambda: batch((0, 40, 0, False)), "computes 40 to 40"),
    "a row twice in a batch": (
        lambda: batch((0, 40, 1, True), (0, 41, 1, True)),
        "in a batch twice",
    ),
    "a decode that does not sample": (
        lambda: batch((1, 0, 1, False), started=[start(1, PROMPT, [4, 5, 6])], num_decodes=1),
        "a decode has other than one token",
    ),
    "more prompt than tokens": (
        lambda: batch(started=[start(1, PROMPT, [4, 5, 6], num_prompt_tokens=41)]),
        "more prompt than tokens",
    ),
    "a hole in a table": (
        lambda: batch(appended=[AppendedBlocks(0, 4, [9])]),
        "has 3 blocks, and blocks are added at 4",
    ),
    "a block replaced without a copy": (
        lambda: batch(appended=[AppendedBlocks(0, 2, [9])]),
        "without being copies",
    ),
    "a prefix hit on a block never written": (
        lambda: hit_in(1, [9, 10, 6], PROMPT, 32),
        "block 9 does not hold its tokens from 0 on",
    ),
    "a prefix hit on other tokens": (
        lambda: hit_in(1, [1, 2, 6], [*SHARED[:31], 99, *range(8)], 32),
        "block 2 does not hold its tokens from 16 on",
    ),
    "a prefix hit after another prefix": (
        lambda: hit_in(1, [2, 6], PROMPT[16:40], 16),
        "block 2 does not hold its tokens from 0 on",
    ),
    "a prefix hit beyond what was written": (
        lambda: hit_in(1, [1, 2, 3], [*PROMPT, 7, 7, 7], 42),
        "block 3 does not hold its tokens from 32 on",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_a_bug(name: str) -> None:
    build_broken, message = BROKEN[name]
    with pytest.raises(RuntimeError, match=f"^bug: .*{message}"):
        with_one_running().run(build_broken())


def test_a_wrong_total_is_a_bug() -> None:
    wrong = batch((0, 40, 1, True), num_decodes=1)
    wrong.total_tokens = 2
    with pytest.raises(RuntimeError, match="total_tokens is 2"):
        with_one_running().run(wrong)


def test_without_checks_nothing_is_refused() -> None:
    executor = build_executor(check=False)
    assert executor.run(prompt_in(1, [0, 0, 0])).token_ids


def test_a_true_prefix_hit_is_taken() -> None:
    executor = with_one_running()
    assert executor.run(hit_in(1, [1, 2, 6], [*SHARED, 7, 8], 32)).token_ids


def test_a_shared_block_is_writable_when_its_other_holder_has_ended() -> None:
    executor = with_one_running()
    executor.run(batch(ended=[0]))
    assert executor.run(prompt_in(1, [3, 2, 1])).token_ids


def test_a_block_is_free_again_in_the_batch_that_ends_its_row() -> None:
    executor = with_one_running()
    again = batch((0, 0, 40, True), started=[start(0, PROMPT, [3, 2, 1])], ended=[0])
    assert executor.run(again).token_ids


def test_a_copy_makes_a_shared_block_writable() -> None:
    executor = with_one_running()
    twin = start(1, [*PROMPT, 5], [1, 2, 3], num_prompt_tokens=40)
    with pytest.raises(RuntimeError, match="writes block 3, which others hold"):
        executor.run(batch((1, 40, 1, True), started=[twin]))
    executor = with_one_running()
    copied = batch(
        (1, 40, 1, True),
        started=[twin],
        appended=[AppendedBlocks(1, 2, [9])],
        copies=[(3, 9)],
    )
    assert executor.run(copied).token_ids


def test_the_scheduler_keeps_the_contract_under_pressure() -> None:
    """Shared prefixes, aborts, preemptions and chunks through a cache for a few requests."""
    config = build_config(step_seconds=0.0, max_model_len=320, num_blocks=24, max_num_seqs=8)
    executor = SimulatedExecutor(config, check=True)
    executor.load(lambda stage, fraction: None)
    source = random.Random(5)
    core = EngineCore(config, executor, executor.allocate_cache(), random_source=source)
    failures = []
    for number in range(200):
        shared = source.choice([0, 16, 40, 80])
        prompt = [*range(shared), *(source.randrange(500) for _ in range(source.randint(1, 60)))]
        core.add(
            AddRequest(
                client_id="test",
                request_id=str(number),
                prompt_token_ids=prompt,
                sampling=SamplingParams(max_tokens=source.randint(1, 90)),
            ),
            now=float(number),
        )
        for _ in range(source.randint(0, 6)):
            failures += [delta.error for _, delta in core.step(float(number)) if delta.error]
        if source.random() < 0.1:
            core.abort([str(source.randint(0, number))])
    while core.has_work():
        failures += [delta.error for _, delta in core.step(200.0) if delta.error]
    assert failures == []
    assert core.stats().num_preemptions > 0
    assert core.stats().num_prefix_hits > 0
    core.check_invariants()
