"""Starts to the first token, each in a process of its own: `python -m benchmarks.gpu.starts`.

    cold    no kernel was ever compiled here
    warm    the same cache again
    pack    an empty cache, and the model's kernels compiled ahead by `quire kernels`

Weights are random, so that no file is read; imports are part of a start.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.gpu.engine_models import CONFIG, MAX_MODEL_LEN
from benchmarks.gpu.harness import Results, measured_head
from quire_kernels.ops.device import cuda_device


def make_pack(shape: str, folder: Path) -> None:
    """Compile the engine's kernels ahead, as the benchmark configures it."""
    scheduler = CONFIG.scheduler
    flags = {
        "--shape": shape,
        "--arch": cuda_device(0).arch,
        "--output": str(folder),
        "--max-num-seqs": str(scheduler.max_num_seqs),
        "--max-num-batched-tokens": str(scheduler.max_num_batched_tokens),
        "--max-model-len": str(MAX_MODEL_LEN),
    }
    words = [word for flag in flags.items() for word in flag]
    subprocess.run([sys.executable, "-m", "quire_local.cli", "kernels", *words], check=True)


def start(shape: str, cache: Path, packs: Path | None = None) -> dict[str, float]:
    """Start once; returns what the engine benchmark measured of it."""
    variables = {"QUIRE_CACHE": str(cache)} | ({"QUIRE_KERNELS": str(packs)} if packs else {})
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [sys.executable, "-m", "benchmarks.gpu.engine", "--no-peaks", "--shape", shape]
        Path(file.name).unlink()
        subprocess.run(
            [*command, "--row", "start", "--json", file.name],
            env=os.environ | variables,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        row = json.loads(Path(file.name).read_text())["results"][f"engine/{shape}/start"]
        Path(file.name).touch()
    return {
        "seconds": row["imports_s"] + row["first_token_s"],
        "imports_s": row["imports_s"],
        "first_token_s": row["first_token_s"],
    }


def main() -> None:
    """Measure the shapes asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--packs", type=Path, help="folder of packs; default: they are made first")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = Results(arguments.json, measured_head())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        packs = arguments.packs or folder / "packs"
        for shape in arguments.shape or ["qwen3-0.6b", "llama3-8b"]:
            if arguments.packs is None:
                make_pack(shape, packs)
            results.add(f"starts/{shape}/cold", start(shape, folder / shape))
            results.add(f"starts/{shape}/warm", start(shape, folder / shape))
            row: dict[str, object] = {**start(shape, folder / f"{shape}-pack", packs)}
            sizes = [file.stat().st_size for file in packs.glob(f"*{shape}*")]
            results.add(f"starts/{shape}/pack", row | {"pack_mb": sum(sizes) / 1e6})


if __name__ == "__main__":
    main()
