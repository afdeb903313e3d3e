"""With `batch_invariant`, a request's tokens do not depend on what else the engine does."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import torch

from quire_engine.config import CacheConfig, EngineConfig, ExecutorConfig, SchedulerConfig
from quire_engine.core.engine import EngineCore
from quire_engine.execution.cuda.executor import CudaExecutor
from quire_engine.execution.cuda.weights import FileWeights
from quire_engine.protocol.messages import AddRequest
from quire_engine.protocol.sampling import SamplingParams
from quire_kernels.ops.attention import AttentionOptions, paged_attention
from quire_kernels.ops.linear import fixed_linear
from tests.unit.execution.cuda_cases import RandomSource, tiny_spec
from tests.unit.kernels.attention_cases import make_case

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

VOCAB = 5003
CONFIG = EngineConfig(
    cache=CacheConfig(max_num_blocks=2000),
    scheduler=SchedulerConfig(max_num_seqs=40, max_num_batched_tokens=2048),
    executor=ExecutorConfig(batch_invariant=True, overlap=True),
)
WAYS: dict[str, dict[str, Any]] = {
    "one-at-a-time": {"scheduler": SchedulerConfig(max_num_seqs=1)},
    "chunks-of-64": {"scheduler": SchedulerConfig(max_num_seqs=40, max_num_batched_tokens=64)},
    "preempted": {"cache": CacheConfig(max_num_blocks=70)},
    "no-prefix-hits": {"cache": CacheConfig(max_num_blocks=2000, enable_prefix_caching=False)},
    "without-graphs": {},
    "without-prompt-graphs": {
        "executor": ExecutorConfig(batch_invariant=True, prompt_graphs=False)
    },
    "without-overlap": {"executor": ExecutorConfig(batch_invariant=True, overlap=False)},
}


@pytest.mark.parametrize("num_in", [576, 4096])
def test_a_products_rows_do_not_see_each_other(num_in: int) -> None:
    weight = torch.randn(1111, num_in, device="cuda").to(torch.bfloat16)
    x = torch.randn(300, num_in, device="cuda").to(torch.bfloat16)
    whole = fixed_linear(x, weight)
    expected = x.float() @ weight.float().t()
    assert (whole.float() - expected).norm() <= torch.finfo(torch.bfloat16).eps * expected.norm()
    for first, last in ((0, 1), (299, 300), (17, 130), (1, 300)):
        assert torch.equal(fixed_linear(x[first:last], weight), whole[first:last])


@pytest.mark.parametrize(
    ("heads", "head_dim"), [((32, 8), 128), ((9, 3), 64), ((8, 4), 256), ((16, 1), 80)]
)
def test_attention_of_chunks_is_that_of_decodes(heads: tuple[int, int], head_dim: int) -> None:
    shape: dict[str, Any] = {
        "num_q_heads": heads[0], "num_kv_heads": heads[1], "head_dim": head_dim,
        "dtype": torch.bfloat16, "device": "cuda", "poison": float("nan"),
    }  # fmt: skip
    options = AttentionOptions(head_dim**-0.5, fixed=True)
    case = make_case([700, 333], [2000, 333], **shape)

    def attend(q: torch.Tensor, batch: Any) -> torch.Tensor:
        return paged_attention(q, case.key_cache, case.value_cache, batch, options)

    whole = attend(case.q, case.batch)
    for taken in (1, 100):
        starts = torch.tensor([0, taken], dtype=torch.int32, device="cuda")
        for seq, (first, count, context) in enumerate([(0, 700, 2000), (700, 333, 333)]):
            for skipped in (0, count // 2, count - taken):
                part = replace(
                    case.batch,
                    cu_seqlens_q=starts,
                    context_lens=torch.tensor(
                        [context - count + skipped + taken], dtype=torch.int32, device="cuda"
                    ),
                    block_table=case.batch.block_table[seq : seq + 1],
                    num_decodes=int(taken == 1),
                )
                rows = slice(first + skipped, first + skipped + taken)
                assert torch.equal(attend(case.q[rows], part), whole[rows])


def outputs_of(config: EngineConfig, *, has_graphs: bool = True) -> dict[str, list[int]]:
    """What 40 requests get that share prefixes, a third each greedy, sampled and cut by top-p."""
    spec = tiny_spec(
        context_length=1024, num_layers=3, hidden_size=512, intermediate_size=1024, num_heads=8,
        num_kv_heads=2, head_dim=128, ties_embeddings=False, vocab_size=VOCAB,
    )  # fmt: skip
    executor = CudaExecutor(config, FileWeights(RandomSource(spec).rounded(torch.bfloat16)))
    executor.load(lambda _stage, _done: None)
    facts = executor.allocate_cache()
    graphs, prompt_graphs = executor._allocated().graphs, executor._allocated().prompt_graphs
    if not has_graphs:
        graphs._graphs = {False: {}, True: {}}
        graphs._failed = {(width, cut) for width in graphs.widths for cut in (False, True)}
        prompt_graphs._graphs = {}
        shapes = prompt_graphs.shapes.all()
        prompt_graphs._failed = {(shape, cut) for shape in shapes for cut in (False, True)}
    core = EngineCore(config, executor, facts, random_source=random.Random(3))
    rng = random.Random(5)
    shared = [rng.randrange(VOCAB) for _ in range(150)]
    requests = []
    kinds = ({"temperature": 0.0}, {"temperature": 0.8}, {"temperature": 0.8, "top_p": 0.8})
    for index in range(40):
        own = [rng.randrange(VOCAB) for _ in range(rng.randint(1, 250))]
        request = AddRequest(
            client_id="c",
            request_id=str(index),
            prompt_token_ids=shared[: rng.choice([0, 64, 150])] + own,
            sampling=SamplingParams(
                max_tokens=rng.randint(1, 60),
                seed=index,
                **kinds[index % 3],  # type: ignore[arg-type]
            ),
        )
        requests.append(request)
    outputs: dict[str, list[int]] = {str(index): [] for index in range(40)}
    now = 0.0
    while requests or core.has_work():
        now += 0.01
        if requests:  # one with every step: prompts come beside decodes
            assert core.add(requests.pop(0), now) is None
        for _, delta in core.step(now):
            assert delta.error is None
            outputs[delta.request_id] += delta.token_ids
    core.check_invariants()
    assert bool(graphs.num_hits) == has_graphs
    assert bool(prompt_graphs.num_hits) == (has_graphs and config.executor.prompt_graphs)
    executor.close()
    return outputs


@pytest.fixture(scope="module")
def usual() -> dict[str, list[int]]:
    return outputs_of(CONFIG)


@pytest.mark.parametrize("way", list(WAYS))
def test_tokens_are_the_same_every_way(way: str, usual: dict[str, list[int]]) -> None:
    config = replace(CONFIG, **WAYS[way])
    assert outputs_of(config, has_graphs=way != "without-graphs") == usual
