"""Whatever else is in the batch, tokens are those that transformers generates from the file."""

import random
from dataclasses import replace

import pytest

from quire_engine.config import EngineConfig
from quire_engine.core.engine import EngineCore
from quire_engine.execution.base import Executor
from quire_engine.protocol.messages import AddRequest, ModelFacts
from quire_engine.protocol.sampling import SamplingParams
from tests.engine.parity.conftest import CONFIG, Judge, Outputs
from tests.engine.parity.prompts import NUM_TOKENS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

Loaded = tuple[Executor, ModelFacts]


def new_core(
    loaded: Loaded, config: EngineConfig = CONFIG, *, num_blocks: int | None = None
) -> EngineCore:
    executor, facts = loaded
    if num_blocks is not None:
        facts = ModelFacts(
            max_model_len=facts.max_model_len,
            vocab_size=facts.vocab_size,
            num_blocks=num_blocks,
            block_size=facts.block_size,
        )
    return EngineCore(config, executor, facts, random_source=random.Random(0))


def generate(core: EngineCore, prompts: Outputs, num_tokens: int = NUM_TOKENS) -> Outputs:
    """Run prompts together and return the output of each."""
    outputs: dict[str, list[int]] = {str(index): [] for index in range(len(prompts))}
    for request_id, prompt in zip(outputs, prompts, strict=True):
        core.add(
            AddRequest(
                client_id="test",
                request_id=request_id,
                prompt_token_ids=prompt,
                sampling=SamplingParams(max_tokens=num_tokens, temperature=0.0),
            ),
            now=0.0,
        )
    while core.has_work():
        for _, delta in core.step(now=0.0):
            assert delta.error is None
            outputs[delta.request_id] += delta.token_ids
        core.check_invariants()
    assert all(len(output) == num_tokens for output in outputs.values())
    return list(outputs.values())


def test_alone(loaded: Loaded, prompts: Outputs, judge: Judge) -> None:
    core = new_core(loaded)
    judge.check("alone", [generate(core, [prompt])[0] for prompt in prompts])


def test_all_together(loaded: Loaded, prompts: Outputs, judge: Judge) -> None:
    judge.check("together", generate(new_core(loaded), prompts))


def test_prompts_in_small_chunks_among_decodes(
    loaded: Loaded, prompts: Outputs, judge: Judge
) -> None:
    scheduler = replace(CONFIG.scheduler, max_num_batched_tokens=37)
    core = new_core(loaded, replace(CONFIG, scheduler=scheduler))
    judge.check("in chunks", generate(core, prompts))


def test_plain_torch_in_small_chunks(loaded_torch: Loaded, prompts: Outputs, judge: Judge) -> None:
    scheduler = replace(CONFIG.scheduler, max_num_batched_tokens=37)
    core = new_core(loaded_torch, replace(CONFIG, scheduler=scheduler))
    judge.check("plain torch, in chunks", generate(core, prompts))


def test_with_prefix_hits(loaded: Loaded, prompts: Outputs, judge: Judge) -> None:
    core = new_core(loaded)
    generate(core, prompts, num_tokens=1)
    hits = core.stats().num_prefix_hits
    judge.check("with prefix hits", generate(core, prompts))
    assert core.stats().num_prefix_hits > hits + 500


def test_after_preemption(loaded: Loaded, prompts: Outputs, judge: Judge) -> None:
    core = new_core(loaded, num_blocks=48)
    judge.check("after preemption", generate(core, prompts))
    assert core.stats().num_preemptions > 0
