"""Whether the GPU says what the CPU says in float32: greedy tokens and perplexity of one model.

`python -m benchmarks.gpu.parity reference MODEL.gguf cpu.json` on any machine, then
`python -m benchmarks.gpu.parity check MODEL.gguf cpu.json --json parity.json` on one with a GPU.

A token may differ only where the reference's two logits are closer than bfloat16 can tell: the
GPU's logits are rounded to it, and so is everything before. What follows such a place is another
text. The texts are computed all at once, kernel by kernel, and in chunks beside decodes, from the
graphs of such steps; each once in the first blocks of a cache that takes all of the device's memory
and once in its last ones, which must not change a bit.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from benchmarks.gpu.harness import Results, measured_head
from benchmarks.gpu.parity_steps import (
    BLOCKS_PER_ROW,
    Tokens,
    generate_at_once,
    generate_in_chunks,
    perplexity,
)
from quire_engine.config import (
    CacheConfig,
    EngineConfig,
    ExecutorConfig,
    ModelConfig,
    SchedulerConfig,
)
from quire_engine.execution.base import Executor
from quire_engine.execution.cuda.executor import CudaExecutor
from quire_engine.execution.factory import create_executor

TEXT = Path(__file__).parents[1] / "data" / "technical.txt"
NUM_SHORT, NUM_LONG, LONG = 30, 4, 448
"""Prompts of 12 to 41 tokens, and some of LONG."""
NUM_PROMPTS = NUM_SHORT + NUM_LONG
SCORED, PIECE = 2048, 512
"""Tokens whose perplexity is taken, in sequences of PIECE."""
NUM_BLOCKS = BLOCKS_PER_ROW * NUM_PROMPTS
TOLERANCE = 0.25
"""Difference of two logits that bfloat16 may turn round: two steps of it at logits of 16 to 32."""


def config_of(*, is_cpu: bool) -> EngineConfig:
    """Rows of PIECE tokens; a GPU's cache takes all of its memory."""
    return EngineConfig(
        model=ModelConfig(max_model_len=PIECE, dtype="float32" if is_cpu else "bfloat16"),
        cache=CacheConfig(max_num_blocks=NUM_BLOCKS if is_cpu else None),
        scheduler=SchedulerConfig(max_num_seqs=NUM_PROMPTS, max_num_batched_tokens=4096),
        executor=ExecutorConfig(device="cpu" if is_cpu else "cuda"),
    )


def prompts_of(token_ids: list[int]) -> Tokens:
    """Short pieces from all over the text, then long ones."""
    step = SCORED // NUM_SHORT
    short = [token_ids[i * step : i * step + 12 + i] for i in range(NUM_SHORT)]
    return [*short, *(token_ids[i * PIECE : i * PIECE + LONG] for i in range(NUM_LONG))]


def pieces_of(token_ids: list[int]) -> Tokens:
    """The whole text, in rows that leave room for a token."""
    return [token_ids[first : first + PIECE - 1] for first in range(0, len(token_ids), PIECE)]


def write_reference(model: Path, path: Path) -> None:
    """Write prompts, tokens, the closest rivals' scores and perplexity, by the CPU in float32."""
    from quire_engine.tokenizing.loading import load_tokenizer

    token_ids = load_tokenizer(model).encode(TEXT.read_text())[:SCORED]
    prompts = prompts_of(token_ids)
    executor = create_executor(config_of(is_cpu=True), model)
    executor.load(lambda _stage, _done: None)
    executor.allocate_cache()
    tokens, scores = generate_at_once(executor, prompts, 8)
    top = [
        [[[*s.top_ids], [*s.top_logprobs]] for s in row if s is not None]
        for row in scores
    ]  # fmt: skip
    reference = {
        "prompts": prompts,
        "tokens": tokens,
        "top": top,
        "scored": token_ids,
        "perplexity": perplexity(executor, pieces_of(token_ids)),
    }
    path.write_text(json.dumps(reference), "utf-8")
    print("perplexity", reference["perplexity"])


def check(model: Path, reference: dict[str, Any]) -> dict[str, Any]:
    """Compare the GPU's tokens and perplexity with the reference's, in each way of computing."""
    executor = create_executor(config_of(is_cpu=False), model)
    if not isinstance(executor, CudaExecutor):
        raise SystemExit("no GPU computes here")
    executor.load(lambda _stage, _done: None)
    num_blocks = executor.allocate_cache().num_blocks
    executor.capture_rest()
    last = num_blocks - NUM_BLOCKS + 1
    ways = {
        "at_once": at_once(executor, reference, last),
        "in_chunks": in_chunks(executor, reference, last),
    }
    return {
        "prompts": len(reference["prompts"]),
        "tolerance": TOLERANCE,
        "num_blocks": num_blocks,
        "elements_before_last_block": num_blocks * executor._allocated().cache.stride(0),
        **ways,
        "passes": all(way["passes"] for way in ways.values()),
    }


def at_once(executor: Executor, reference: dict[str, Any], last: int) -> dict[str, Any]:
    """All texts in one step, and the perplexity of a longer one; `last`: the last blocks' first."""
    pieces = pieces_of(reference["scored"])
    low, _ = generate_at_once(executor, reference["prompts"])
    high, _ = generate_at_once(executor, reference["prompts"], first=last)
    found, again = perplexity(executor, pieces), perplexity(executor, pieces, first=last)
    result = compare(low, reference)
    ratio = found / reference["perplexity"]
    same = high == low and found == again
    result |= {"perplexity": found, "perplexity_ratio": ratio, "same_in_the_last_blocks": same}
    return {**result, "passes": result["passes"] and same and abs(ratio - 1) <= 0.005}


def in_chunks(executor: CudaExecutor, reference: dict[str, Any], last: int) -> dict[str, Any]:
    """The texts one after the other; each step with prompts is to run from a graph."""
    graphs = executor._allocated().prompt_graphs
    before = graphs.num_hits
    low, num_steps = generate_in_chunks(executor, reference["prompts"])
    high, _ = generate_in_chunks(executor, reference["prompts"], first=last)
    num_hits = graphs.num_hits - before
    result = compare(low, reference)
    same, from_graphs = high == low, num_hits == 2 * num_steps
    result |= {"steps_with_prompts": 2 * num_steps, "from_graphs": num_hits}
    result |= {"same_in_the_last_blocks": same}
    return {**result, "passes": result["passes"] and same and from_graphs}


def compare(tokens: Tokens, reference: dict[str, Any]) -> dict[str, Any]:
    """How many texts are the reference's to the end, and how close its logits are elsewhere."""
    gaps = [
        gap
        for ours, theirs, top in zip(tokens, reference["tokens"], reference["top"], strict=True)
        if (gap := first_gap(ours, theirs, top)) is not None
    ]
    return {
        "identical": len(tokens) - len(gaps),
        "gaps_where_they_part": sorted(gaps),
        "passes": all(gap <= TOLERANCE for gap in gaps),
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
