"""What the CUDA executor refuses to start with, and what its refusals say."""

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from quire_engine.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from quire_engine.errors import CapacityError, ConfigError, ModelError
from quire_engine.execution import factory
from quire_engine.execution.cuda.capacity import (
    GRAPHS_BYTES,
    DeviceMemory,
    check_supported,
    count_blocks,
)
from quire_engine.execution.cuda.executor import CudaExecutor
from quire_engine.execution.cuda.kernel_cache import kernels_folder, use_cache
from quire_engine.execution.cuda.platform import cuda_platform
from quire_engine.execution.cuda.preparing import refusals
from quire_kernels.errors import UnsupportedError
from tests.unit.execution.cuda_cases import tiny_spec

GIB = 1 << 30
SPEC = tiny_spec(num_layers=32, num_heads=8, num_kv_heads=8, head_dim=128)
BLOCK_BYTES = 16 * 2 * 32 * 8 * 128 * 2
"""Tokens x keys and values x layers x heads x their size x bytes of bfloat16."""


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A GPU that can be asked what it is, and nothing else."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    return monkeypatch


def test_a_gpu_that_torch_cannot_use_is_told_where_the_cpu_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def init() -> None:
        raise RuntimeError("The NVIDIA driver on your system is too old (found 11040). Please")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", init)
    assert not factory._has_cuda(tmp_path / "nothing")
    assert not caplog.records
    assert not factory._has_cuda(tmp_path)
    assert "torch cannot use it (The NVIDIA driver on your system is too old" in caplog.text


def test_a_full_disk_is_told_with_where_kernels_are_kept() -> None:
    use_cache(os.environ)
    where = rf"QUIRE_CACHE; kernels are kept in {re.escape(kernels_folder())} \(\[Errno 28\]"
    with pytest.raises(ConfigError, match=where), refusals("kernels were compiled"):
        Path("/dev/full").write_bytes(b"a kernel")


def test_a_compiler_that_fails_is_told_with_what_it_takes() -> None:
    message = "the C compiler failed while graphs were made, .* Python's headers, too .*'false'"
    with pytest.raises(ConfigError, match=message), refusals("graphs were made"):
        subprocess.run(["false"], check=True)


def test_more_sequences_than_a_grid_has_programs_are_refused() -> None:
    def config(max_num_seqs: int) -> EngineConfig:
        scheduler = SchedulerConfig(max_num_seqs=max_num_seqs, max_num_batched_tokens=70_000)
        return EngineConfig(scheduler=scheduler)

    check_supported(config(65_519), SPEC, 256)
    message = "max_num_seqs 65520 is more than the GPU's kernels take: 65519 at most"
    with pytest.raises(ConfigError, match=message):
        check_supported(config(65_520), SPEC, 256)


def test_a_type_without_kernels_is_refused(with_gpu: pytest.MonkeyPatch) -> None:
    config = EngineConfig(model=ModelConfig(dtype="float32"))
    message = r"dtype float32 has no GPU kernels: use bfloat16 \(auto\) or float16"
    with pytest.raises(ConfigError, match=message):
        CudaExecutor(config, Path())


def test_a_gpu_that_is_too_old_is_refused(with_gpu: pytest.MonkeyPatch) -> None:
    message = "Tesla T4 has compute capability 7.5: the kernels need 8.0 or newer"
    with pytest.raises(ConfigError, match=message):
        cuda_platform(EngineConfig())


@pytest.mark.parametrize("head_dim", [32, 72, 112, 192, 512])
def test_a_head_size_without_kernels_is_refused(head_dim: int) -> None:
    message = f"head size {head_dim} has no GPU kernel; supported are 64, 80, 96, 128, 256"
    with pytest.raises(ModelError, match=message):
        check_supported(EngineConfig(), tiny_spec(head_dim=head_dim), 256)


def test_what_the_decoder_does_not_compute_is_named() -> None:
    spec = tiny_spec(activation="gelu_tanh", attention_softcap=50.0)
    with pytest.raises(
        ModelError, match=r"does not compute the gate's GELU, the soft-caps of llama"
    ):
        check_supported(EngineConfig(), spec, 256)


def memory(total_gib: float, used_gib: float) -> DeviceMemory:
    return DeviceMemory(
        total=int(total_gib * GIB), used=int(used_gib * GIB), step_peak=GIB, graph_peak=GIB // 2
    )


def count(memory_: DeviceMemory | None, *, max_len: int = 8192, **cache: object) -> int:
    config = EngineConfig(cache=replace(CacheConfig(gpu_memory_utilization=0.9), **cache))  # type: ignore[arg-type]
    return count_blocks(config, SPEC, max_len, 2, memory_)


def test_the_cache_takes_what_weights_and_the_worst_step_leave() -> None:
    rest = int(80 * GIB * 0.9) - 16 * GIB - GIB - GIB // 2 - GRAPHS_BYTES
    assert SPEC.kv_bytes_per_token(2) * 16 == BLOCK_BYTES
    assert count(memory(80, 16)) == rest // BLOCK_BYTES - 1


def test_too_little_memory_is_refused_with_what_fits_and_what_would() -> None:
    fitting = (int(24 * GIB * 0.9) - 19 * GIB - GIB - GIB // 2 - GRAPHS_BYTES) // BLOCK_BYTES - 1
    assert 0 < fitting < 512
    with pytest.raises(CapacityError) as refusal:
        count(memory(24, 19))
    assert str(refusal.value) == (
        f"one request of max_model_len 8192 tokens needs 512 KV blocks of {BLOCK_BYTES} bytes, and"
        f" there are {fitting} (of 24.0 GiB, 19.0 are in use with the weights, and steps take 2.0):"
        f" lower max_model_len to {fitting * 16}, or free {(512 - fitting) * BLOCK_BYTES} bytes"
    )
    assert count(memory(24, 19), max_len=fitting * 16) == fitting


def test_no_memory_left_at_all_is_no_negative_number() -> None:
    with pytest.raises(CapacityError, match="there are 0 ") as refusal:
        count(memory(24, 23.5))
    assert str(refusal.value).endswith(f": free {512 * BLOCK_BYTES} bytes")


def test_more_blocks_than_fit_are_refused_with_how_many_do() -> None:
    fitting = count(memory(80, 16))
    with pytest.raises(CapacityError, match=f"so {fitting} fit; lower max_num_blocks to that"):
        count(memory(80, 16), max_num_blocks=fitting + 1)
    assert count(memory(80, 16), max_num_blocks=fitting) == fitting


def test_fewer_blocks_than_a_request_needs_are_refused() -> None:
    with pytest.raises(CapacityError, match=r"needs 512 KV blocks .* lower max_model_len to 1600"):
        count(None, max_num_blocks=100)


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (torch.OutOfMemoryError("no 3 GiB\nmore"), CapacityError, r"ran out while .*\(no 3 GiB\)"),
        (UnsupportedError("no table for sm70"), ConfigError, "cannot compute this model: no table"),
        (
            RuntimeError("ptxas failed\nlog"),
            ConfigError,
            "failed while steps ran: RuntimeError: ptx",
        ),
        (CapacityError("ours"), CapacityError, "^ours$"),
    ],
)
def test_what_fails_at_a_start_is_a_refusal_with_its_reason(
    error: Exception, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message), refusals("steps ran"):
        raise error
