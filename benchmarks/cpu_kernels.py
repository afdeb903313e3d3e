"""Times the CPU kernels on a GGUF model of the Llama family: `--json FILE` keeps the figures.

    linear    all matrix products of one step, by themselves, against torch's in fp32
    step      a whole step through `Decoder.greedy_step`, 64 tokens of context
    llama.cpp the same steps through its batched interface, where llama-cpp-python is installed,
              here or in the environment whose Python `--llamacpp-python` names

Wall time is what counts on a quiet machine. On a busy one two threads wait for each other's cores,
so CPU time, summed over the threads, is reported too: `--threads 1` makes it comparable. Ratios are
of medians from the same run. GB/s are bytes of packed weights over the time of the products.
"""

import argparse
import importlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

BATCHES = (1, 8, 16)
PROMPT = 512
CONTEXT = 64
BLOCK_SIZE = 16
REPETITIONS = 15

Timings = dict[str, dict[str, float]]
"""By case: milliseconds of wall and of CPU time, medians."""


def main() -> None:
    options = _parse()
    if options.peer:
        print(json.dumps(time_llamacpp(options.model, options.threads, options.peer)))
        return
    results: dict[str, Any] = {"threads": options.threads, "step": time_ours(options)}
    results |= time_linear(options)
    results["llamacpp"] = ask_peer(options, PEER_CASES)
    for case, timing in (results["llamacpp"] or {}).items():
        ours = results["step"][case]
        results[f"{case}_vs_llamacpp"] = round(timing["wall_ms"] / ours["wall_ms"], 2)
        results[f"{case}_vs_llamacpp_cpu_time"] = round(timing["cpu_ms"] / ours["cpu_ms"], 2)
    text = json.dumps(results, indent=2)
    print(text)
    if options.json is not None:
        options.json.write_text(text + "\n")


def measure(run: Callable[[], object], repetitions: int = REPETITIONS) -> dict[str, float]:
    """Median milliseconds of a call, after one that warms up."""
    run()
    walls, cpus = [], []
    for _ in range(repetitions):
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return {
        "wall_ms": round(statistics.median(walls) * 1e3, 2),
        "cpu_ms": round(statistics.median(cpus) * 1e3, 2),
    }


def load(path: Path, team: Any) -> tuple[Any, Any]:  # noqa: ANN401 (the peer has no kernels)
    """Pack a file's weights as the engine does; returns the decoder's shape and weights."""
    from quire_engine.execution.native_cpu.loading import decoder_shape, load_decoder
    from quire_engine.execution.native_cpu.matrices import open_matrices
    from quire_engine.models.loading.weights import open_weights

    source = open_weights(path)
    matrices = open_matrices(source, team, None)
    return decoder_shape(source.spec), load_decoder(matrices, PROMPT, lambda _: None)


def time_ours(options: argparse.Namespace) -> Timings:
    import torch

    from quire_kernels.cpu import Decoder, StepInputs, Team

    team = Team(options.threads)
    shape, weights = load(options.model, team)
    decoder = Decoder(shape, weights, team)
    blocks = PROMPT // BLOCK_SIZE
    tables = torch.arange(1, 1 + max(BATCHES) * blocks, dtype=torch.int32).view(-1, blocks)
    cache_shape = (tables.numel() + 1, len(weights.layers), 2, shape.num_kv_heads)
    cache = torch.zeros(*cache_shape, BLOCK_SIZE, shape.head_dim, dtype=torch.float16)

    def step(batch: int, start: int, count: int) -> Callable[[], object]:
        def repeated(value: int) -> torch.Tensor:
            return torch.full((batch,), value, dtype=torch.int32)

        inputs = StepInputs(
            rows=torch.arange(batch, dtype=torch.int32),
            starts=repeated(start),
            num_tokens=repeated(count),
            samples=torch.ones(batch, dtype=torch.bool),
            token_ids=torch.arange(100, 100 + batch * count, dtype=torch.int32),
            block_tables=tables,
        )
        return lambda: decoder.greedy_step(inputs, cache)

    timings = {f"decode_{batch}": measure(step(batch, CONTEXT, 1)) for batch in BATCHES}
    timings[f"prefill_{PROMPT}"] = measure(step(1, 0, PROMPT), 5)
    return timings


def time_linear(options: argparse.Namespace) -> dict[str, Any]:
    import torch

    from quire_kernels.cpu import Team
    from quire_kernels.cpu.ops import embed, matmul

    torch.set_num_threads(options.threads)
    team = Team(options.threads)
    _, weights = load(options.model, team)
    matrices = [getattr(layer, name) for layer in weights.layers for name in MATRICES]
    matrices.append(weights.head)
    rows = [torch.arange(matrix.rows, dtype=torch.int32) for matrix in matrices]
    pairs = zip(rows, matrices, strict=True)
    dense = [embed(ids, matrix, team).T.contiguous() for ids, matrix in pairs]
    results: dict[str, Any] = {}
    for tokens in (*BATCHES, PROMPT):
        xs = {matrix.cols: torch.randn(tokens, matrix.cols) for matrix in matrices}
        repetitions = REPETITIONS if tokens < PROMPT else 3

        def packed(xs: dict[int, torch.Tensor] = xs) -> None:
            for matrix in matrices:
                matmul(xs[matrix.cols], matrix, team)

        def torch_fp32(xs: dict[int, torch.Tensor] = xs) -> None:
            for weight in dense:
                torch.mm(xs[weight.shape[0]], weight)

        ours, theirs = measure(packed, repetitions), measure(torch_fp32, repetitions)
        results[f"linear_{tokens}"] = {"packed": ours, "torch_fp32": theirs}
        results[f"linear_{tokens}_vs_torch_fp32"] = round(theirs["wall_ms"] / ours["wall_ms"], 2)
    size = sum(matrix.tiles.numel() for matrix in matrices)
    results["packed_bytes"] = size
    seconds = results["linear_1"]["packed"]["wall_ms"] / 1e3
    results["linear_1_gb_per_s"] = round(size / seconds / 1e9, 1)
    return results


MATRICES = ("query", "key", "value", "output", "gate", "up", "down")


PEER_CASES = ("decode", "prefill")


def time_llamacpp(model_path: Path, threads: int, cases: Sequence[str]) -> Timings:
    """Time decode steps of each batch, a prompt, or both."""
    llama_cpp: Any = importlib.import_module("llama_cpp")
    silent = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(silent, None)
    model = llama_cpp.llama_model_load_from_file(
        str(model_path).encode(), llama_cpp.llama_model_default_params()
    )
    parameters = llama_cpp.llama_context_default_params()
    parameters.n_ctx = max(BATCHES) * PROMPT
    parameters.n_batch = parameters.n_ubatch = PROMPT
    parameters.n_seq_max, parameters.kv_unified = max(BATCHES), True
    parameters.n_threads = parameters.n_threads_batch = threads
    context = llama_cpp.llama_init_from_model(model, parameters)
    memory = llama_cpp.llama_get_memory(context)
    batch = llama_cpp.llama_batch_init(PROMPT, 0, 1)

    def decode(tokens: list[tuple[int, int, bool]]) -> None:
        """Compute tokens (position, sequence, whether it samples)."""
        batch.n_tokens = len(tokens)
        for index, (position, sequence, samples) in enumerate(tokens):
            batch.token[index], batch.pos[index] = 100 + index, position
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, sequence
            batch.logits[index] = samples
        if llama_cpp.llama_decode(context, batch):
            raise RuntimeError("llama.cpp could not decode")
        llama_cpp.llama_synchronize(context)

    def fill(count: int) -> None:
        llama_cpp.llama_memory_clear(memory, True)
        for sequence in range(count):
            decode([(position, sequence, False) for position in range(CONTEXT)])

    def prefill() -> None:
        llama_cpp.llama_memory_clear(memory, True)
        decode([(position, 0, position == PROMPT - 1) for position in range(PROMPT)])

    timings = {}
    for size in BATCHES if "decode" in cases else ():
        fill(size)
        positions = iter(range(CONTEXT, PROMPT))

        def one_step(size: int = size, positions: Any = positions) -> None:  # noqa: ANN401
            position = next(positions)
            decode([(position, sequence, True) for sequence in range(size)])

        timings[f"decode_{size}"] = measure(one_step)
    if "prefill" in cases:
        timings[f"prefill_{PROMPT}"] = measure(prefill, 3)
    return timings


def ask_peer(options: argparse.Namespace, cases: Sequence[str]) -> Timings | None:
    """Run llama.cpp in a process of its own; None where it is not installed."""
    command = [options.llamacpp_python, __file__, "--peer", *cases, "--model", str(options.model)]
    command += ["--threads", str(options.threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"no llama.cpp to compare with: {reason}", file=sys.stderr)
        return None
    timings: Timings = json.loads(done.stdout.splitlines()[-1])
    return timings


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = Path.home() / ".cache" / "quire" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    parser.add_argument("--model", type=Path, default=default, help="a GGUF file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--llamacpp-python", default=sys.executable)
    parser.add_argument("--peer", nargs="+", choices=PEER_CASES, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
