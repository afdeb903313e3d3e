"""Whether the GPU says what the CPU says in float32: greedy tokens and perplexity of one model.

`python -m benchmarks.gpu.parity reference MODEL.gguf cpu.json` on any machine, then
`python -m benchmarks.gpu.parity check MODEL.gguf cpu.json --json parity.json` on one with a GPU.

A token may differ only where the reference's two logits are closer than bfloat16 can tell: the
GPU's logits are rounded to it, and so is everything before. What follows such a place is another
text.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.harness import Results, measured_head
from quire_engine.config import (
    CacheConfig,
    EngineConfig,
    ExecutorConfig,
    ModelConfig,
    SchedulerConfig,
)
from quire_engine.config.kinds import Device, DType
from quire_engine.execution.base import Batch, Chunks, Executor, StartedRow
from quire_engine.execution.factory import create_executor
from quire_engine.protocol.sampling import SamplingParams, TokenLogprobs

TEXT = Path(__file__).parents[1] / "data" / "technical.txt"
NUM_PROMPTS, NUM_OUTPUT = 30, 32
SCORED, PIECE = 2048, 512
"""Tokens whose perplexity is taken, in sequences of PIECE."""
BLOCKS_PER_ROW = PIECE // 16
TOLERANCE = 0.25
"""Difference of two logits that bfloat16 may turn round: two steps of it at logits of 16 to 32."""


def make_executor(model: Path, device: Device, dtype: DType) -> Executor:
    """Load the model for rows of PIECE tokens."""
    config = EngineConfig(
        model=ModelConfig(max_model_len=PIECE, dtype=dtype),
        cache=CacheConfig(max_num_blocks=BLOCKS_PER_ROW * NUM_PROMPTS),
        scheduler=SchedulerConfig(max_num_seqs=NUM_PROMPTS, max_num_batched_tokens=2048),
        executor=ExecutorConfig(device=device),
    )
    executor = create_executor(config, model)
    executor.load(lambda _stage, _done: None)
    executor.allocate_cache()
    return executor


def start_all(texts: Sequence[list[int]], sampling: SamplingParams) -> Batch:
    """All texts whole, in one step, each with blocks of its own."""
    rows, lengths = list(range(len(texts))), [len(text) for text in texts]
    started = [
        StartedRow(
            row,
            text,
            list(range(1 + BLOCKS_PER_ROW * row, 1 + BLOCKS_PER_ROW * (row + 1))),
            sampling,
            len(text),
            row,
        )
        for row, text in enumerate(texts)
    ]
    chunks = Chunks(rows, [0] * len(rows), lengths, [True] * len(rows), 0)
    return Batch(started=started, chunks=chunks, total_tokens=sum(lengths))


def generate(
    executor: Executor, texts: Sequence[list[int]], num_logprobs: int | None
) -> tuple[list[list[int]], list[list[TokenLogprobs | None]]]:
    """Greedy tokens of each text, and their scores where asked for."""
    sampling = SamplingParams(max_tokens=NUM_OUTPUT, temperature=0.0, num_logprobs=num_logprobs)
    count = len(texts)
    results = [executor.run(start_all(texts, sampling))]
    for step in range(NUM_OUTPUT - 1):
        starts = [len(text) + step for text in texts]
        chunks = Chunks(list(range(count)), starts, [1] * count, [True] * count, count)
        results.append(executor.run(Batch(chunks=chunks, total_tokens=count)))
    tokens = [list(column) for column in zip(*(r.token_ids for r in results), strict=True)]
    scores = [[(r.logprobs or [None] * count)[row] for r in results] for row in range(count)]
    return tokens, scores


def perplexity(executor: Executor, token_ids: list[int]) -> float:
    """Of pieces of the text, by the scores of prompts."""
    texts = [token_ids[first : first + PIECE - 1] for first in range(0, len(token_ids), PIECE)]
    sampling = SamplingParams(max_tokens=1, temperature=0.0, num_prompt_logprobs=0)
    scores = executor.run(start_all(texts, sampling)).prompt_logprobs or {}
    losses = [-score.logprob for row in scores.values() for score in row]
    return math.exp(sum(losses) / len(losses))


def write_reference(model: Path, path: Path) -> None:
    """Write prompts, tokens, the closest rivals' scores and perplexity, by the CPU in float32."""
    from quire_engine.tokenizing.loading import load_tokenizer

    token_ids = load_tokenizer(model).encode(TEXT.read_text())[:SCORED]
    step = SCORED // NUM_PROMPTS
    prompts = [token_ids[i * step : i * step + 12 + i] for i in range(NUM_PROMPTS)]
    executor = make_executor(model, "cpu", "float32")
    tokens, scores = generate(executor, prompts, 8)
    top = [
        [[[*s.top_ids], [*s.top_logprobs]] for s in row if s is not None]
        for row in scores
    ]  # fmt: skip
    reference = {
        "prompts": prompts,
        "tokens": tokens,
        "top": top,
        "scored": token_ids,
        "perplexity": perplexity(executor, token_ids),
    }
    path.write_text(json.dumps(reference), "utf-8")
    print("perplexity", reference["perplexity"])


def check(model: Path, reference: dict[str, Any]) -> dict[str, Any]:
    """Compare the GPU's tokens and perplexity with the reference's."""
    executor = make_executor(model, "cuda", "bfloat16")
    tokens, _ = generate(executor, reference["prompts"], None)
    gaps = [
        gap
        for ours, theirs, top in zip(tokens, reference["tokens"], reference["top"], strict=True)
        if (gap := first_gap(ours, theirs, top)) is not None
    ]
    found = perplexity(executor, reference["scored"])
    return {
        "prompts": len(tokens),
        "identical": len(tokens) - len(gaps),
        "gaps_where_they_part": sorted(gaps),
        "tolerance": TOLERANCE,
        "perplexity": found,
        "perplexity_ratio": found / reference["perplexity"],
        "passes": all(gap <= TOLERANCE for gap in gaps)
        and abs(found / reference["perplexity"] - 1) <= 0.005,
    }


def first_gap(ours: list[int], theirs: list[int], top: list[Any]) -> float | None:
    """How far apart the reference's logits are where the tokens first differ; None: nowhere."""
    for token, expected, (ids, logprobs) in zip(ours, theirs, top, strict=True):
        if token != expected:
            found = dict(zip(ids, logprobs, strict=True))
            return float(found[expected] - found.get(token, -math.inf))
    return None


def main() -> None:
    """Write the reference, or check against it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["reference", "check"])
    parser.add_argument("model", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "reference":
        write_reference(arguments.model, arguments.reference)
        return
    result = check(arguments.model, json.loads(arguments.reference.read_text("utf-8")))
    Results(arguments.json, measured_head()).add(f"parity/{arguments.model.stem}", result)


if __name__ == "__main__":
    main()
