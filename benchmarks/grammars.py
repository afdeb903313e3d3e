"""What structured output costs: compiling, masks beside a CPU step, and whether answers are valid.

    compile_50_fields_ms      writing and compiling a schema of 50 required fields, CPU time, median
    compile_50_optional_ms    the same with all of them optional
    mask_share_of_step_8      CPU time for the masks of 8 rows, their application and their tokens,
                              over that of a decode step of 8 requests without any
    mask_us_per_row           the same for one row, microseconds
    step_8_without_ms         that step
    valid_share               of finished answers to random schemas at temperature 1, those that
                              are valid; num_finished and num_refused are of `--schemas`

All times are CPU time of the process: wall time on a busy machine measures the other processes.
Start it as `python -m benchmarks.grammars [--model FILE.gguf] [--json FILE]`.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import numpy as np
import torch
from hypothesis import HealthCheck, Phase, given, settings

from quire_engine.config import CacheConfig, EngineConfig, ExecutorConfig, ModelConfig
from quire_engine.core.engine import EngineCore
from quire_engine.execution.base import Batch, Chunks, StartedRow
from quire_engine.execution.grammar_rows import GrammarRows
from quire_engine.execution.native_cpu.choice import CpuExecutor
from quire_engine.grammar.compiler import CompiledGrammar, Compiler
from quire_engine.grammar.matching import GrammarState
from quire_engine.grammar.writing import encode_spec, write_grammar
from quire_engine.protocol.grammar import JsonSchemaGrammar
from quire_engine.protocol.messages import AddRequest, FinishReason, ModelFacts
from quire_engine.protocol.sampling import SamplingParams
from quire_engine.server.grammar_process import make_vocabulary, try_wish
from quire_engine.sources.factory import resolve
from quire_engine.tokenizing.loading import load_tokenizer
from quire_engine.tokenizing.tokenizer import Tokenizer
from tests.unit.grammar.schemas import schemas

ROWS = 8
STEPS = 48
MAX_TOKENS = 96
_PROMPT = "<|im_start|>user\nAnswer in JSON.<|im_end|>\n<|im_start|>assistant\n"
KINDS: tuple[dict[str, Any], ...] = (
    {"type": "string"},
    {"type": "integer"},
    {"type": "number"},
    {"type": "boolean"},
    {"type": "array", "items": {"type": "string"}},
)
FIFTY: dict[str, Any] = {
    "type": "object",
    "properties": {f"field_{number}": KINDS[number % len(KINDS)] for number in range(50)},
    "required": [f"field_{number}" for number in range(50)],
    "additionalProperties": False,
}


def main() -> None:
    options = _parse()
    if options.model is None:
        options.model = resolve(EngineConfig().model.source).path
    tokenizer = load_tokenizer(options.model)
    executor, facts = _load(options.model)
    compiler = Compiler(make_vocabulary(tokenizer, facts.vocab_size))
    optional = {**FIFTY, "required": []}
    results: dict[str, Any] = {
        "load_average": round(os.getloadavg()[0], 1),
        "compile_50_fields_ms": _time_ms(lambda: _compile(compiler, FIFTY), 9),
        "compile_50_optional_ms": _time_ms(lambda: _compile(compiler, optional), 9),
    }
    step_ms = _time_steps(executor)
    mask_ms = _time_masks(_compile(compiler, FIFTY), facts.vocab_size)
    results |= {
        "step_8_without_ms": round(step_ms, 3),
        "mask_us_per_row": round(1000 * mask_ms / ROWS, 1),
        "mask_share_of_step_8": round(mask_ms / step_ms, 4),
    }
    print(json.dumps(results), flush=True)
    if options.schemas:
        results |= _answer_schemas(options, executor, facts, tokenizer)
    executor.close()
    print(json.dumps(results, indent=2))
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a GGUF file; default: the small one")
    parser.add_argument("--schemas", type=int, default=0, help="random schemas to answer")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _load(model: Path) -> tuple[CpuExecutor, ModelFacts]:
    config = _config()
    executor = CpuExecutor(config, model)
    executor.load(lambda _stage, _fraction: None)
    return executor, executor.allocate_cache()


def _config() -> EngineConfig:
    return EngineConfig(
        model=ModelConfig(max_model_len=1024),
        cache=CacheConfig(max_num_blocks=1024),
        executor=ExecutorConfig(device="cpu", seed=0),
    )


def _compile(compiler: Compiler, schema: dict[str, Any]) -> CompiledGrammar:
    return compiler.compile(write_grammar(JsonSchemaGrammar(schema)))


def _time_ms(work: Callable[[], object], times: int) -> float:
    found = []
    for _ in range(times):
        started_at = time.process_time()
        work()
        found.append(1000 * (time.process_time() - started_at))
    return round(statistics.median(found), 1)


def _time_steps(executor: CpuExecutor) -> float:
    """CPU time of a decode step of all rows, milliseconds: the median."""
    prompt = list(range(100, 132))
    sampling = SamplingParams(max_tokens=STEPS + 1, temperature=1.0)
    started = [
        StartedRow(row, prompt, list(range(1 + 8 * row, 9 + 8 * row)), sampling, len(prompt), row)
        for row in range(ROWS)
    ]
    rows = list(range(ROWS))
    lengths = [len(prompt)] * ROWS
    executor.run(
        Batch(
            started=started,
            chunks=Chunks(rows, [0] * ROWS, lengths, [True] * ROWS),
            total_tokens=sum(lengths),
        )
    )
    times = []
    for step in range(STEPS):
        chunks = Chunks(rows, [len(prompt) + step] * ROWS, [1] * ROWS, [True] * ROWS, ROWS)
        started_at = time.process_time()
        executor.run(Batch(chunks=chunks, total_tokens=ROWS))
        times.append(1000 * (time.process_time() - started_at))
    executor.run(Batch(ended=rows))
    return statistics.median(times)


def _time_masks(compiled: CompiledGrammar, vocab_size: int) -> float:
    """CPU time of all that grammars add to a step of all rows, milliseconds: the median.

    Tokens are drawn at random from those that may come, which is worse than what a model writes:
    it stays in no string for long.
    """
    chance = np.random.default_rng(0)
    grammars, states = GrammarRows(), []
    sampling = SamplingParams(max_tokens=STEPS + 1)
    for row in range(ROWS):
        states.append(GrammarState(compiled, compiled.vocabulary.end_token_ids))
        grammars.start(StartedRow(row, [1], [1], sampling, 1, row, states[-1]))
    logits = torch.zeros(ROWS, vocab_size)
    rows, times = list(range(ROWS)), []
    for step in range(STEPS):
        tokens = [int(chance.choice(state.permitted())) for state in states]
        started_at = time.process_time()
        grammars.apply(logits, rows, [1 + step] * ROWS)
        grammars.advance(rows, tokens)
        times.append(1000 * (time.process_time() - started_at))
    return statistics.median(times)


def _answer_schemas(
    options: argparse.Namespace, executor: CpuExecutor, facts: ModelFacts, tokenizer: Tokenizer
) -> dict[str, Any]:
    """Answer random schemas with the model, eight at a time; see `valid_share`."""
    core = EngineCore(_config(), executor, facts)
    vocabulary = make_vocabulary(tokenizer, facts.vocab_size)
    core.grammars.use(msgspec.msgpack.encode(vocabulary))
    wanted, num_refused = _draw_schemas(options.schemas, Compiler(vocabulary))
    prompt = tokenizer.encode(
        "<|im_start|>user\nAnswer in JSON.<|im_end|>\n<|im_start|>assistant\n"
    )
    texts: dict[str, list[int]] = {}
    ends: dict[str, FinishReason] = {}
    for number, schema in enumerate(wanted):
        sampling = SamplingParams(
            max_tokens=MAX_TOKENS, seed=number, stop_token_ids=tokenizer.eos_token_ids
        )
        core.add(
            AddRequest(
                client_id="bench",
                request_id=str(number),
                prompt_token_ids=prompt,
                sampling=sampling,
                grammar=write_grammar(JsonSchemaGrammar(schema)),
            ),
            time.monotonic(),
        )
    while core.has_work():
        for _, delta in core.step(time.monotonic()):
            texts.setdefault(delta.request_id, []).extend(delta.token_ids)
            if delta.finish_reason is not None:
                ends[delta.request_id] = delta.finish_reason
    finished = [name for name, reason in ends.items() if reason is FinishReason.STOP]
    others = set(ends.values()) - {FinishReason.STOP, FinishReason.LENGTH}
    if others or not finished:
        raise RuntimeError(f"bug: {len(finished)} answers finished, and some ended by {others}")
    wrong = [
        name for name in finished if not _is_valid(wanted[int(name)], tokenizer.decode(texts[name]))
    ]
    for name in wrong:
        print("INVALID", json.dumps(wanted[int(name)]), tokenizer.decode(texts[name]))
    return {
        "num_schemas": len(wanted),
        "num_refused": num_refused,
        "num_finished": len(finished),
        "num_cut": sum(reason is FinishReason.LENGTH for reason in ends.values()),
        "valid_share": 1 - len(wrong) / max(len(finished), 1),
    }


def _draw_schemas(count: int, compiler: Compiler) -> tuple[list[dict[str, Any]], int]:
    """Draw so many random schemas that the server would take; how many it refuses, too."""
    drawn: list[dict[str, Any]] = []
    refused = [0]

    @settings(
        max_examples=20 * count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(schemas)
    def draw(schema: dict[str, Any]) -> None:
        if len(drawn) >= count or schema in drawn:
            return
        if try_wish(compiler, encode_spec(JsonSchemaGrammar(schema))).error is None:
            drawn.append(schema)
        else:
            refused[0] += 1

    draw()
    return drawn, refused[0]


def _is_valid(schema: dict[str, Any], text: str) -> bool:
    try:
        jsonschema.Draft202012Validator(schema).validate(json.loads(text))
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


if __name__ == "__main__":
    main()
