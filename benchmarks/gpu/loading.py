"""How fast weights come from files onto the device: `python -m benchmarks.gpu.loading MODEL ...`.

Each model, a folder or a GGUF file, is loaded twice: first as its files happen to be in memory or
not, then from the system's cache. Bytes are those of the files' tensors on the device.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from benchmarks.gpu.harness import Results, measured_head
from quire_engine.config import EngineConfig
from quire_engine.execution.cuda.platform import cuda_platform
from quire_engine.execution.cuda.weights import DecoderWeights, FileWeights


def load(model: Path) -> tuple[float, int]:
    """Seconds of a load, and the bytes that it brought."""
    platform = cuda_platform(EngineConfig())
    torch.cuda.synchronize()
    begin = time.perf_counter()
    weights = FileWeights(model)
    weights.open()
    with platform.on_stream():
        loaded = weights.load(platform, lambda _done: None)
    torch.cuda.synchronize()
    return time.perf_counter() - begin, num_bytes(loaded)


def num_bytes(weights: DecoderWeights) -> int:
    """Bytes of all tensors; a tied embedding counts once."""
    tensors = [weights.embedding, weights.final_norm]
    if weights.head is not weights.embedding:
        tensors.append(weights.head)
    for layer in weights.layers:
        tensors += [
            layer.attention_norm,
            layer.query_key_value,
            layer.attention_output,
            layer.mlp_norm,
            layer.gate_up,
            layer.down,
        ]
    return sum(tensor.nbytes for tensor in tensors)


def main() -> None:
    """Measure the models named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = Results(arguments.json, measured_head())
    for model in arguments.models:
        first, size = load(model)
        torch.cuda.empty_cache()
        seconds, size = load(model)
        torch.cuda.empty_cache()
        row = {"gb": size / 1e9, "seconds": seconds, "gb_per_s": size / seconds / 1e9}
        results.add(
            f"loading/{model.stem if model.is_file() else model.name}",
            row | {"first_seconds": first},
        )


if __name__ == "__main__":
    main()
