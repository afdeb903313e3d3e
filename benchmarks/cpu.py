"""The CPU's speed, start, memory and quality beside transformers and llama.cpp.

    decode_N_vs_PEER            the peer's time of one step of N requests over ours, wall time
    exact_N_vs_transformers     the same with --dtype float32
    ..._8_vs_transformers_one_at_a_time   8 of its steps of one request over one of ours of 8: what
                                it does with 8 requests unless its user batches them
    prefill_vs_llamacpp         a prompt of 512 tokens
    start_seconds               from starting the process to a loaded model, cache and tokenizer
    peak_memory_vs_transformers our process's peak over the peer's
    top1_agreement              with float32, over each position of a fixed text; _bfloat16 is the
                                same with weights and cache in bfloat16

Every key of time has a twin that ends in _cpu_time: wall time on a busy machine measures the other
processes. llama.cpp runs where llama-cpp-python is installed, here or in the environment whose
Python `--llamacpp-python` names; without it its keys are left out.

A section compares within itself: all that its ratios divide is measured in one go. `--only` runs
some, and what `--json` has of the others stays. Start it as `python -m benchmarks.cpu --json FILE`.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import benchmarks.cpu_kernels
from benchmarks import cpu_contenders

Found = dict[str, Any]

SECTIONS = {
    "start": ("packed",),
    "prefill": ("packed", "llamacpp"),
    "decode": ("packed", "float32", "transformers", "llamacpp"),
    "quality": ("quality",),
}
"""By section: who is measured. One that takes long comes late."""
CONTENDERS = ("packed", "float32", "transformers", "quality")
_STEPS = ("decode_1", "decode_8")
_PROMPT = f"_{benchmarks.cpu_kernels.PROMPT}"


def main() -> None:
    options = _parse()
    if options.contender:
        print(json.dumps(_contend(options)))
        return
    results = _begin(options)
    for section in options.only or SECTIONS:
        load = round(os.getloadavg()[0], 1)
        found = {name: _ask(options, section, name) for name in SECTIONS[section]}
        results["sections"][section] = {"load_average": load, **found}
        results |= _summarize(section, found)
        print(json.dumps({section: _summarize(section, found)}), flush=True)
        if options.json is not None:
            options.json.write_text(json.dumps(results, indent=2) + "\n")


def _begin(options: argparse.Namespace) -> Found:
    """Return what the file has so far, if it is of the same model and threads."""
    about = {"threads": options.threads, "model": options.model.name}
    if options.json is None or not options.json.exists():
        return {**about, "sections": {}}
    results: Found = json.loads(options.json.read_text())
    if any(results.get(key) != value for key, value in about.items()):
        sys.exit(f"{options.json} has results of another model or number of threads: move it away")
    return results


def _summarize(section: str, found: Found) -> Found:
    ours = found.get("packed", {})
    match section:
        case "start":
            return {"start_seconds": ours["start_seconds"]}
        case "prefill":
            theirs = found["llamacpp"]
            return (
                _compare("prefill_vs_llamacpp", theirs["prefill"], ours["prefill"])
                if theirs
                else {}
            )
        case "decode":
            return _summarize_decode(found)
        case _:
            quality: Found = found["quality"]
            return quality


def _summarize_decode(found: Found) -> Found:
    ours, peer, llamacpp = found["packed"], found["transformers"], found["llamacpp"]
    results: Found = {}
    for step in _STEPS:
        exact = step.replace("decode", "exact")
        results |= _compare(f"{step}_vs_transformers", peer[step], ours[step])
        results |= _compare(f"{exact}_vs_transformers", peer[step], found["float32"][step])
        if step == "decode_8":
            alone = {key: 8 * milliseconds for key, milliseconds in peer["decode_1"].items()}
            key = "vs_transformers_one_at_a_time"
            results |= _compare(f"{step}_{key}", alone, ours[step])
            results |= _compare(f"{exact}_{key}", alone, found["float32"][step])
        if llamacpp:
            results |= _compare(f"{step}_vs_llamacpp", llamacpp[step], ours[step])
    memory = ours["peak_memory_mb"] / peer["peak_memory_mb"]
    return results | {"peak_memory_vs_transformers": round(memory, 3)}


def _compare(key: str, theirs: dict[str, float], ours: dict[str, float]) -> dict[str, float]:
    return {
        key: round(theirs["wall_ms"] / ours["wall_ms"], 2),
        f"{key}_cpu_time": round(theirs["cpu_ms"] / ours["cpu_ms"], 2),
    }


def _contend(options: argparse.Namespace) -> Found:
    model, threads = options.model, options.threads
    match options.contender:
        case "transformers":
            return cpu_contenders.run_transformers(model, threads)
        case "quality":
            from benchmarks.cpu_quality import compare

            return compare(model, options.positions, threads)
        case dtype:
            section = options.only[0]
            return cpu_contenders.run_quire(model, threads, dtype, section, options.spawned_at)


def _ask(options: argparse.Namespace, section: str, name: str) -> Found | None:
    """Measure one contender in a process of its own; None: it is not installed."""
    if name == "llamacpp":
        found = benchmarks.cpu_kernels.ask_peer(options, [section])
        return found and {case.removesuffix(_PROMPT): timing for case, timing in found.items()}
    command = [sys.executable, "-m", "benchmarks.cpu", "--contender", name, "--only", section]
    command += ["--model", str(options.model), "--threads", str(options.threads)]
    command += ["--positions", str(options.positions), "--spawned-at", str(time.time())]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    measured: Found = json.loads(done.stdout.splitlines()[-1])
    return measured


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = Path.home() / ".cache" / "quire" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    parser.add_argument("--model", type=Path, default=default, help="a GGUF file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--positions", type=int, default=2000, help="of the text, for quality")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="sections to run")
    parser.add_argument("--json", type=Path, help="where results go, and stay between runs")
    parser.add_argument("--llamacpp-python", default=sys.executable)
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--spawned-at", type=float, default=0.0, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
