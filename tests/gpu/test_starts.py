"""Starts on devices without tables, from packs, and those that are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from triton import knobs

from quire_engine.config import CacheConfig
from quire_engine.errors import CapacityError, ConfigError
from quire_engine.execution.cuda.ahead import compile_model
from quire_engine.execution.cuda.executor import CudaExecutor
from quire_engine.execution.cuda.weights import FileWeights
from quire_kernels.compiled.packs import write_pack
from quire_kernels.ops import device as devices
from quire_kernels.ops import norm
from quire_kernels.ops.device import Device, cuda_device
from quire_kernels.tuning import search, tables
from tests.gpu.test_executor import CONFIG, check_greedy, generate, prompts, source_of
from tests.unit.models.builders import make_llama
from tests.unit.tokenizing.builders import train_byte_level

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

START = """
import json, logging, sys
from tests.gpu.test_executor import decode, generate, prefill, prompts, source_of, start_executor
from quire_engine.protocol.sampling import SamplingParams
from triton import knobs

logging.basicConfig(level=logging.INFO, stream=sys.stderr)
compiled = []
def listen(*, src, metadata, metadata_group, times, cache_hit):
    if not cache_hit:
        compiled.append(src.name)
knobs.compilation.listener = listen
executor, _ = start_executor(source_of("llama3"))
texts = prompts([20, 3, 130], 5003)
drawn = SamplingParams(max_tokens=100, temperature=0.8, top_k=30, top_p=0.9)
tokens = generate(executor, texts, 12)
generate(executor, texts, 6, drawn)
print(json.dumps({"compiled": compiled, "tokens": tokens}))
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of its own, and Triton's settings put back."""
    monkeypatch.setenv("QUIRE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)  # Triton's settings are exported
    monkeypatch.setattr(knobs, "propagate_env", False)
    monkeypatch.setattr(knobs.cache, "dir", knobs.cache.dir)
    monkeypatch.setattr(tables, "_TUNED", {})
    tables.find.cache_clear()
    yield tmp_path
    tables.find.cache_clear()


def start(variables: dict[str, str]) -> tuple[list[str], list[list[int]], str]:
    """Start an engine in a process of its own: what it compiled, its tokens, its log."""
    done = subprocess.run(
        [sys.executable, "-c", START],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    return said["compiled"], said["tokens"], done.stderr


def test_a_start_from_a_pack_compiles_nothing(home: Path) -> None:
    arch = cuda_device(0).arch
    knobs.cache.dir, pack = str(home / "made"), home / f"{arch}-tiny.kernels.tar.xz"
    compile_model(CONFIG, source_of("llama3").spec, arch, has_head_norms=False)
    num_kernels = write_pack(home / "made", arch, pack)
    without, expected, _ = start({"QUIRE_CACHE": str(home / "1")})
    compiled, tokens, log = start({"QUIRE_CACHE": str(home / "2"), "QUIRE_KERNELS": str(home)})
    assert len(without) > 10
    assert compiled == []
    assert tokens == expected
    assert f"{num_kernels} compiled kernels of {pack} are used" in log
    again, tokens, _ = start({"QUIRE_CACHE": str(home / "1")})
    assert again == []
    assert tokens == expected


def test_a_device_without_a_table_is_tuned_once_and_computes_the_same(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unknown = replace(cuda_device(0), arch="sm99")
    monkeypatch.setattr(devices, "cuda_device", lambda _index: unknown)
    caplog.set_level("INFO")
    source = source_of("llama3")
    executor = CudaExecutor(CONFIG, FileWeights(source))
    executor.load(lambda _stage, _fraction: None)
    executor.allocate_cache()
    assert "sm99 has no tiles for decode_attention of head size 128" in caplog.text
    assert {*json.loads((home / "cache" / "tuning-sm99.json").read_text())} == {
        "decode_attention",
        "prefill_attention",
    }
    texts = prompts([5, 64, 131, 17, 200, 1, 33], 5003)
    check_greedy(source, texts, generate(executor, texts, 12))
    executor.close()

    monkeypatch.setattr(tables, "_TUNED", {})  # as another process would have it
    monkeypatch.setattr(search, "fastest", None)
    tables.find.cache_clear()
    executor = CudaExecutor(CONFIG, FileWeights(source))
    executor.load(lambda _stage, _fraction: None)
    executor.allocate_cache()
    executor.close()


def test_a_device_that_runs_no_tile_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> float:
        raise RuntimeError("out of resource: shared memory")

    unknown = Device("sm98", cuda_device(0).num_multiprocessors)
    monkeypatch.setattr(devices, "cuda_device", lambda _index: unknown)
    monkeypatch.setattr(search, "_milliseconds", fail)
    message = (
        "the GPU cannot compute this model: decode_attention: no configuration runs on this "
        "device: out of resource: shared memory"
    )
    with pytest.raises(ConfigError, match=message):
        start_any()


def start_any() -> None:
    executor = CudaExecutor(CONFIG, FileWeights(source_of("llama3")))
    executor.load(lambda _stage, _fraction: None)
    try:
        executor.allocate_cache()
    finally:
        executor.close()


def test_a_kernel_that_does_not_compile_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(norm, "next_power_of_two", lambda value: value + 1)
    message = "the GPU failed while kernels were compiled and steps were profiled: CompilationError"
    with pytest.raises(ConfigError, match=message):
        start_any()


def test_too_little_memory_is_refused_with_what_fits_and_what_would() -> None:
    executor = CudaExecutor(
        replace(CONFIG, cache=CacheConfig(gpu_memory_utilization=0.004)),
        FileWeights(source_of("llama3")),
    )
    executor.load(lambda _stage, _fraction: None)
    with pytest.raises(CapacityError, match=r"needs 64 KV blocks .* there are 0 \(of .* GiB"):
        executor.allocate_cache()
    executor.close()


def test_a_machine_without_a_gpu_is_told_what_to_do(tmp_path: Path) -> None:
    make_llama(tmp_path, vocab_size=(backend := train_byte_level("qwen2")).get_vocab_size())
    backend.save(str(tmp_path / "tokenizer.json"))
    done = subprocess.run(
        [sys.executable, "-m", "quire_engine", str(tmp_path), "--device", "cuda", "--port", "0"],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "torch finds no CUDA GPU here (" in done.stderr
    assert "): use --device cpu" in done.stderr
