"""Time narrow products against cuBLAS, and write the table entries of the shapes that win.

`python -m benchmarks.gpu.tune_linear --json FILE [--seconds N]`
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks.gpu.harness import Results, environment, graph_seconds, num_rotations
from benchmarks.gpu.linear_cases import SHAPES
from quire_kernels.ops import linear
from quire_kernels.tuning.tables import LaunchConfig

WINS_BY = 1.03
"""A configuration enters the table when it beats cuBLAS by this factor."""

VECTOR = [
    LaunchConfig(1, n, w, s, block_k=k)
    for n, k, w, s in (
        (4, 1024, 4, 1), (8, 512, 4, 1), (8, 1024, 4, 1), (16, 512, 4, 1), (8, 1024, 8, 1),
        (16, 256, 4, 3), (16, 512, 4, 3), (32, 256, 4, 4), (4, 512, 2, 1), (2, 1024, 2, 1),
    )
]  # fmt: skip
NARROW_TILES = [
    (16, 256, 4, 4), (32, 128, 4, 5), (32, 256, 4, 3), (64, 128, 4, 4), (64, 64, 4, 6),
    (128, 64, 4, 5), (128, 128, 8, 3), (16, 512, 4, 3),
]  # fmt: skip


def configs_for(num_rows: int, num_out: int, num_in: int) -> list[LaunchConfig]:
    """Candidates whose programs neither starve nor flood the device."""
    found = list(VECTOR) if num_rows == 1 else []
    for (n, k, warps, stages), splits in itertools.product(NARROW_TILES, (1, 2, 4, 8)):
        programs = num_out // n * splits
        if num_in // (k * splits) >= 2 and (splits == 1 or programs <= 528) and programs >= 64:
            found.append(LaunchConfig(16, n, warps, stages, block_k=k, splits=splits))
    return found


def compile_one(job: tuple[int, LaunchConfig]) -> None:
    """Compile into the on-disk cache."""
    rows, config = job
    x = torch.randn(rows, 4096, device="cuda").to(torch.bfloat16)
    weight = torch.randn(1024, 4096, device="cuda").to(torch.bfloat16)
    try:
        linear.launch(x, weight, x.new_empty(rows, 1024), config)
    except Exception as error:  # noqa: BLE001 - what does not fit is skipped again when timed
        print(config, str(error)[:80], flush=True)


def sweep_shape(
    num_rows: int, num_out: int, num_in: int, deadline: float
) -> dict[str, object] | None:
    """CuBLAS and every candidate on rotated weights."""
    rotations = num_rotations(2 * num_out * num_in)
    weights = [
        torch.randn(num_out, num_in, device="cuda").to(torch.bfloat16) for _ in range(rotations)
    ]
    x = torch.randn(num_rows, num_in, device="cuda").to(torch.bfloat16)
    out = x.new_empty(num_rows, num_out)

    def timed(call: Callable[[torch.Tensor], object]) -> float:
        return 1e6 * graph_seconds(
            [lambda w=w: call(w) for w in weights],  # type: ignore[misc]
            replays=7, budget_seconds=0.05,
        )  # fmt: skip

    cublas = timed(lambda w: torch.mm(x, w.t(), out=out))
    rows = []
    for config in configs_for(num_rows, num_out, num_in):
        if time.monotonic() > deadline:
            break
        try:
            rows.append((timed(lambda w, c=config: linear.launch(x, w, out, c)), config))  # type: ignore[misc]
        except Exception:  # noqa: BLE001
            continue
        expected = x.float() @ weights[-1].float().t()
        if not (out.float() - expected).norm() <= 0.01 * expected.norm():
            print("WRONG", num_rows, num_out, num_in, config, flush=True)
            rows.pop()
    if not rows:
        return None
    rows.sort(key=lambda row: row[0])
    gb = 2 * num_out * num_in / 1e3
    return {
        "cublas_us": cublas, "cublas_tb_per_s": gb / cublas / 1e3,
        "triton_us": rows[0][0], "triton_tb_per_s": gb / rows[0][0] / 1e3,
        "wins": cublas / rows[0][0] >= WINS_BY, "config": asdict(rows[0][1]),
        "next": [[round(us, 2), asdict(config)] for us, config in rows[1:3]],
    }  # fmt: skip


def main() -> None:
    """Sweep and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 8, 16, 32])
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.seconds
    every = {
        (rows, config)
        for rows in {16 if r > 1 else 1 for r in arguments.rows} | {1, 32}
        for config in configs_for(rows, 100_000, 1 << 16)
    }
    every |= {(rows, config) for rows in (1, 16, 32) for config in configs_for(rows, 4096, 1 << 16)}
    with multiprocessing.get_context("spawn").Pool(14) as pool:
        pool.map(compile_one, sorted(every, key=str), chunksize=2)
    print("compiled", round(time.monotonic() - deadline + arguments.seconds), flush=True)
    results = Results(arguments.json, environment())
    for rows in arguments.rows:
        for model, layers in SHAPES.items():
            for layer, (num_out, num_in) in layers.items():
                if time.monotonic() < deadline:
                    row = sweep_shape(rows, num_out, num_in, deadline)
                    if row is not None:
                        results.add(f"linear/{model}/{layer}/rows{rows}", row)


if __name__ == "__main__":
    main()
