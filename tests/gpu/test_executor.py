"""The CUDA executor against plain float32 attention, and against itself run in other ways.

A sampled token may differ from the reference's only where the two logits are closer than bf16's
rounding moves them. It moves these models' logits by 2.9 % of their spread in the mean, by 4.8 % in
the worst of 1,900 rows, the same from graphs, kernel by kernel and batch-invariant. Two logits part
by 1.4 times as much, and the largest is 3.7 times the spread: 0.01 of the largest is a standard
deviation, and few of 1,000 tokens are beyond three of them. Tokens of one text are not independent:
the furthest seen, 0.065, is of a text whose two best logits come closer by 0.04 to 0.065 in each of
40 ways to cut it into chunks, launched kernel by kernel.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from quire_engine.config import CacheConfig, EngineConfig, ExecutorConfig, SchedulerConfig
from quire_engine.core.engine import EngineCore
from quire_engine.execution.base import Batch, Chunks, StartedRow
from quire_engine.execution.cuda.buckets import PromptShape
from quire_engine.execution.cuda.executor import CudaExecutor
from quire_engine.execution.cuda.weights import FileWeights
from quire_engine.protocol.messages import AddRequest, ModelFacts
from quire_engine.protocol.sampling import SamplingParams
from tests.unit.execution.cuda_cases import RandomSource, reference_logits, tiny_spec

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

NUM_LAYERS = 4
TOLERANCE = 0.08
"""Of the largest logit."""
USUAL, MAX_UNUSUAL = 0.03, 0.002
"""Three standard deviations, and the share of tokens that may be further off."""
CONFIG = EngineConfig(
    cache=CacheConfig(max_num_blocks=600),
    scheduler=SchedulerConfig(max_num_seqs=40, max_num_batched_tokens=512),
)
GREEDY = SamplingParams(max_tokens=100, temperature=0.0)
MODELS = {
    "smollm2": {"hidden_size": 576, "intermediate_size": 1536, "num_heads": 9, "num_kv_heads": 3},
    "qwen3": {
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_heads": 16,
        "num_kv_heads": 8,
        "head_dim": 128,
    },
    "llama3": {
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_heads": 8,
        "num_kv_heads": 2,
        "head_dim": 128,
        "ties_embeddings": False,
        "vocab_size": 5003,
    },
}


def source_of(model: str) -> RandomSource:
    spec = tiny_spec(context_length=1024, num_layers=NUM_LAYERS, **MODELS[model])
    return RandomSource(spec, has_head_norms=model == "qwen3").rounded(torch.bfloat16)


def start_executor(
    source: RandomSource, config: EngineConfig = CONFIG
) -> tuple[CudaExecutor, ModelFacts]:
    executor = CudaExecutor(config, FileWeights(source))
    executor.load(lambda _stage, _fraction: None)
    return executor, executor.allocate_cache()


@pytest.fixture(scope="module", params=list(MODELS))
def model(request: pytest.FixtureRequest) -> Iterator[tuple[RandomSource, CudaExecutor]]:
    source = source_of(request.param)
    executor, _ = start_executor(source)
    yield source, executor
    executor.close()


def check_greedy(source: RandomSource, texts: list[list[int]], outputs: list[list[int]]) -> None:
    """Each token is the reference's, or within rounding of it; nine in ten are the very same."""
    num_same, num_unusual = 0, 0
    for text, output in zip(texts, outputs, strict=True):
        logits = reference_logits(source, text + output)[len(text) - 1 : -1]
        tokens = torch.tensor(output)
        chosen = logits.gather(1, tokens[:, None]).squeeze(1)
        short = (logits.amax(-1) - chosen) / logits.abs().amax(-1)
        assert short.max() <= TOLERANCE, f"{short.max():.4f} of {TOLERANCE:.4f}"
        num_same += int((logits.argmax(-1) == tokens).sum())
        num_unusual += int((short > USUAL).sum())
    assert num_unusual <= max(1, MAX_UNUSUAL * sum(map(len, outputs)))
    assert num_same >= 0.9 * sum(map(len, outputs))


def prompts(lengths: list[int], vocab_size: int) -> list[list[int]]:
    rng = random.Random(1)
    return [[rng.randrange(vocab_size) for _ in range(length)] for length in lengths]


def prefill(texts: list[list[int]], sampling: SamplingParams = GREEDY) -> Batch:
    """All prompts whole, in one step; row i has its own 24 blocks."""
    rows = list(range(len(texts)))
    started = [
        StartedRow(i, text, list(range(1 + 24 * i, 25 + 24 * i)), sampling, len(text), 5 + i)
        for i, text in enumerate(texts)
    ]
    lengths = [len(text) for text in texts]
    chunks = Chunks(rows, [0] * len(rows), lengths, [True] * len(rows), 0)
    return Batch(started=started, chunks=chunks, total_tokens=sum(lengths))


def decode(starts: list[int]) -> Batch:
    count = len(starts)
    chunks = Chunks(list(range(count)), starts, [1] * count, [True] * count, count)
    return Batch(chunks=chunks, total_tokens=count)


LENGTHS = [5, 64, 131, 17, 200, 1, 33]


def generate(
    executor: CudaExecutor, texts: list[list[int]], count: int, sampling: SamplingParams = GREEDY
) -> list[list[int]]:
    steps = [executor.run(prefill(texts, sampling)).token_ids]
    steps += [
        executor.run(decode([len(text) + step for text in texts])).token_ids
        for step in range(count - 1)
    ]
    return [list(column) for column in zip(*steps, strict=True)]


def test_greedy_is_the_references(model: tuple[RandomSource, CudaExecutor]) -> None:
    source, executor = model
    texts = prompts(LENGTHS, source.spec.vocab_size)
    check_greedy(source, texts, generate(executor, texts, 12))


def test_graphs_change_no_token(
    model: tuple[RandomSource, CudaExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, executor = model
    texts = prompts(LENGTHS, source.spec.vocab_size)
    sampling = SamplingParams(max_tokens=100, temperature=0.8, top_k=30, top_p=0.9)
    eager, _ = start_executor(source)
    without = eager._allocated().graphs
    without._graphs = {False: {}, True: {}}
    monkeypatch.setattr(without, "capture_next", lambda: False)
    prompts_without = eager._allocated().prompt_graphs
    monkeypatch.setattr(prompts_without, "capture_next", lambda: False)
    for how in (GREEDY, sampling):
        executor._allocated().graphs._capture(8, truncates=how is sampling)
        assert generate(executor, texts, 20, how) == generate(eager, texts, 20, how)
    assert without.num_captured == 0
    assert prompts_without.num_hits == 0
    eager.close()


def test_steps_with_prompts_from_graphs_bring_the_references_tokens(
    model: tuple[RandomSource, CudaExecutor],
) -> None:
    source, executor = model
    graphs = executor._allocated().prompt_graphs
    texts = prompts([40, 3, 170, 60], source.spec.vocab_size)
    for shape in ((256, 0), (64, 16)):
        graphs._capture(PromptShape(*shape), truncates=False)
    before = graphs.num_hits
    first, late = prefill(texts[:3]), prefill(texts)
    outputs = [[token] for token in executor.run(first).token_ids]
    # the fourth comes beside two of the others' decodes
    chunks = Chunks([0, 2, 3], [40, 170, 0], [1, 1, 60], [True] * 3, 2)
    mixed = Batch(started=late.started[3:], chunks=chunks, total_tokens=62)
    tokens = executor.run(mixed).token_ids
    assert graphs.num_hits == before + 2
    outputs[0].append(tokens[0])
    outputs[2].append(tokens[1])
    check_greedy(source, texts, [*outputs, tokens[2:]])


def test_two_steps_in_flight_change_no_token(model: tuple[RandomSource, CudaExecutor]) -> None:
    source, executor = model
    texts = prompts(LENGTHS, source.spec.vocab_size)
    expected = generate(executor, texts, 10)
    executor.submit(prefill(texts))
    steps = []
    for step in range(9):
        executor.submit(decode([len(text) + step for text in texts]))
        steps.append(executor.collect().token_ids)
    steps.append(executor.collect().token_ids)
    assert [list(column) for column in zip(*steps, strict=True)] == expected


def test_a_graph_that_is_missing_is_captured_between_steps(
    model: tuple[RandomSource, CudaExecutor],
) -> None:
    source, executor = model
    graphs = executor._allocated().graphs
    texts = prompts([20] * 20, source.spec.vocab_size)
    graphs._graphs[False].pop(24, None)
    output = generate(executor, texts, 6)
    assert 24 in graphs._graphs[False]
    check_greedy(source, texts, output)


@pytest.mark.parametrize(("overlap", "prompt_graphs"), [(True, True), (False, True), (True, False)])
@pytest.mark.parametrize("num_blocks", [600, 70])
def test_the_engine_with_prefix_hits_chunks_and_preemptions(
    num_blocks: int, overlap: bool, prompt_graphs: bool
) -> None:
    source = source_of("llama3")
    config = replace(
        CONFIG,
        cache=CacheConfig(max_num_blocks=num_blocks),
        executor=ExecutorConfig(overlap=overlap, prompt_graphs=prompt_graphs),
    )
    executor, facts = start_executor(source, config)
    core = EngineCore(config, executor, facts, random_source=random.Random(3))
    rng = random.Random(num_blocks)
    shared = prompts([150], 5003)[0]
    texts = []
    for index in range(60):
        own = [rng.randrange(5003) for _ in range(rng.randint(1, 250))]
        texts.append(shared[: rng.choice([0, 64, 150])] + own)
        request = AddRequest(
            client_id="c",
            request_id=str(index),
            prompt_token_ids=texts[-1],
            sampling=SamplingParams(max_tokens=rng.randint(1, 60), temperature=0.0),
        )
        assert core.add(request, 0.0) is None
    outputs: dict[str, list[int]] = {str(index): [] for index in range(60)}
    now = 0.0
    while core.has_work():
        now += 0.01
        for _, delta in core.step(now):
            assert delta.error is None
            outputs[delta.request_id] += delta.token_ids
        core.check_invariants()
    assert bool(executor._allocated().prompt_graphs.num_hits) == prompt_graphs
    executor.close()
    check_greedy(source, texts, list(outputs.values()))
