"""Time launch configurations of the attention kernels and write every figure as JSON.

`python -m benchmarks.gpu.tune_attention --json FILE [--only decode|prefill] [--seconds N]`

Kernels are compiled first by a pool of processes into Triton's cache. What comes out feeds the
tables in `quire_kernels/tuning`.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from benchmarks.gpu.attention_cases import (
    CASES,
    NUM_KV_HEADS,
    OPTIONS,
    Case,
    Inputs,
    make_inputs,
)
from benchmarks.gpu.harness import Results, environment, graph_seconds, num_rotations
from quire_kernels.ops import attention_decode, attention_prefill
from quire_kernels.tuning.tables import LaunchConfig

Call = Callable[[], None]

DECODE_TILES = [
    (32, 2, 7), (32, 2, 9), (32, 4, 9), (64, 2, 5), (64, 2, 7), (64, 4, 5), (64, 4, 7), (64, 4, 9),
    (128, 4, 5), (128, 8, 5), (128, 4, 7), (128, 8, 7), (64, 8, 7), (64, 4, 3),
]  # fmt: skip
PREFILL_TILES = [
    (128, 64, 8, 3),
    (128, 64, 8, 5),
    (128, 128, 8, 3),
    (256, 64, 8, 3),
    (128, 64, 4, 5),
]


def decode_configs() -> list[LaunchConfig]:
    """Every decode configuration of the sweep."""
    return [LaunchConfig(16, *tile) for tile in DECODE_TILES]


def prefill_configs() -> list[LaunchConfig]:
    """Every portable prefill configuration of the sweep."""
    return [LaunchConfig(*tile) for tile in PREFILL_TILES]


def splits_to_try(case: Case) -> Iterator[int]:
    """One split, and counts that fill the device one to four times over."""
    programs = case.num_seqs * NUM_KV_HEADS
    tried = {1}
    yield 1
    for waves in (1, 2, 3, 4):
        splits = max(1, min(128, (132 * waves) // programs))
        if splits not in tried and case.context_len // splits >= 64:
            tried.add(splits)
            yield splits


def decode_calls(inputs: list[Inputs], config: LaunchConfig, splits: int) -> list[Call]:
    """One call per rotation."""

    def call(x: Inputs) -> None:
        attention_decode.launch_configured(
            x.q, x.key_cache, x.value_cache, x.out, x.batch, OPTIONS, config, splits
        )

    return [functools.partial(call, x) for x in inputs]


def prefill_calls(inputs: list[Inputs], config: LaunchConfig, *, fresh: bool) -> list[Call]:
    """One call per rotation."""

    def call(x: Inputs) -> None:
        k_new = x.k_new if fresh else None
        v_new = x.v_new if fresh else None
        attention_prefill.launch_portable(
            x.q, x.key_cache, x.value_cache, x.out, x.batch, OPTIONS, k_new, v_new, config
        )

    return [functools.partial(call, x) for x in inputs]


def compile_one(job: tuple[str, LaunchConfig]) -> str:
    """Compile a configuration into the on-disk cache by running it on a small case."""
    kind, config = job
    try:
        if kind == "decode":
            case = Case("small", 1, 1, 256, 0)
            for splits in (1, 2):
                decode_calls(make_inputs(case, 1), config, splits)[0]()
        else:
            case = Case("small", 1, 128, 128, 0)
            for fresh in (False, True):
                prefill_calls(make_inputs(case, 1), config, fresh=fresh)[0]()
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001 - a configuration that does not fit is a finding
        return f"{kind} {config}: {type(error).__name__} {str(error)[:100]}"
    return ""


def main() -> None:
    """Sweep and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--only", choices=["decode", "prefill"])
    parser.add_argument("--seconds", type=float, default=400)
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.seconds
    jobs = [("decode", c) for c in decode_configs()] if arguments.only != "prefill" else []
    if arguments.only != "decode":
        jobs += [("prefill", c) for c in prefill_configs()]
    with multiprocessing.get_context("spawn").Pool(12) as pool:
        for problem in filter(None, pool.imap_unordered(compile_one, jobs)):
            print(problem, flush=True)
    print("compiled", time.monotonic() - deadline + arguments.seconds, flush=True)
    results = Results(arguments.json, environment())
    for case in CASES:
        kind = "decode" if case.is_decode else "prefill"
        configs = [config for name, config in jobs if name == kind]
        if not configs or time.monotonic() > deadline:
            continue
        inputs = make_inputs(case, num_rotations(case.num_bytes))
        sweep_case(case, inputs, configs, results, deadline)
        del inputs
        torch.cuda.empty_cache()


def sweep_case(
    case: Case,
    inputs: list[Inputs],
    configs: list[LaunchConfig],
    results: Results,
    deadline: float,
) -> None:
    """Time every configuration of one case, fastest first in the file."""
    rows: list[tuple[float, int, dict[str, int]]] = []
    for config in configs:
        for variant in splits_to_try(case) if case.is_decode else (0, 1):
            if time.monotonic() > deadline:
                break
            try:
                seconds = time_variant(case, inputs, config, variant)
            except Exception as error:  # noqa: BLE001 - what does not fit is a finding
                print(config, variant, str(error)[:100], flush=True)
                continue
            work = case.num_bytes if case.is_decode else case.num_flops
            rows.append((round(work / seconds / 1e12, 3), variant, vars(config)))
    rows.sort(key=lambda row: -row[0])
    results.add(case.key, {"fastest_first": rows})


def time_variant(case: Case, inputs: list[Inputs], config: LaunchConfig, variant: int) -> float:
    """Seconds of one configuration; `variant`: splits of a decode, or whether keys are fresh."""
    if case.is_decode:
        calls = decode_calls(inputs, config, variant)
    else:
        calls = prefill_calls(inputs, config, fresh=bool(variant))
    return graph_seconds(calls, replays=7, budget_seconds=0.1)


if __name__ == "__main__":
    main()
