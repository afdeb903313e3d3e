"""How weights come into the native executor, and what computes where the kernels cannot."""

import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from quire_engine.config import CacheConfig, ModelConfig
from quire_engine.config.kinds import DType
from quire_engine.errors import ConfigError, ModelError
from quire_engine.execution.factory import create_executor
from quire_engine.execution.native_cpu.choice import CpuExecutor
from quire_engine.execution.native_cpu.executor import NativeExecutor
from quire_engine.execution.native_cpu.loading import decoder_shape, load_decoder
from quire_engine.execution.native_cpu.matrices import open_matrices
from quire_engine.execution.torch_cpu.executor import TorchExecutor
from quire_engine.models.loading.weights import open_weights
from quire_kernels.cpu import Decoder, StepInputs, Team, unavailable_reason
from tests.unit.execution.native_cases import configure, load, silent, some_tokens
from tests.unit.models.builders import TinyModel, make_llama, write_gguf

needs_kernels = pytest.mark.skipif(unavailable_reason() is not None, reason="no C++ compiler")


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    """Rows of 256 weights, as K types need them."""
    folder = tmp_path_factory.mktemp("wide")
    return make_llama(folder, hidden_size=256, intermediate_size=256, initializer_range=0.05)


def last_logits(
    path: Path, tokens: list[int], weights: torch.dtype | None, cache: torch.dtype
) -> torch.Tensor:
    """[vocab] of the last token of a prompt."""
    source, team = open_weights(path), Team(1)
    packed = load_decoder(open_matrices(source, team, weights), 256, lambda _: None)
    shape = decoder_shape(source.spec)
    blocks = -(-len(tokens) // 16)
    inputs = StepInputs(
        rows=torch.zeros(1, dtype=torch.int32),
        starts=torch.zeros(1, dtype=torch.int32),
        num_tokens=torch.tensor([len(tokens)], dtype=torch.int32),
        samples=torch.ones(1, dtype=torch.bool),
        token_ids=torch.tensor(tokens, dtype=torch.int32),
        block_tables=torch.arange(1, blocks + 1, dtype=torch.int32)[None],
    )
    size = (blocks + 1, source.spec.num_layers, 2, shape.num_kv_heads, 16, shape.head_dim)
    logits: torch.Tensor = Decoder(shape, packed, team).step(inputs, torch.zeros(size, dtype=cache))
    return logits[0]


def distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Root mean square of the difference over that of the logits."""
    return float((found - expected).norm() / (expected - expected.mean()).norm())


def random_blocks(values: np.ndarray, kind: gguf.GGMLQuantizationType) -> np.ndarray:
    """Blocks of a K type, which the gguf package reads but cannot write."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.random.default_rng(values.size).integers(0, 256, (values.size // block, size))
    packed = blocks.astype(np.uint8)
    scale = np.frombuffer(np.float16(1e-4).tobytes(), np.uint8)
    starts = {"Q4_K": (0, 2), "Q6_K": (208,), "Q3_K": (108,)}[kind.name]
    for start in starts:
        packed[:, start : start + 2] = scale
    return packed.reshape(values.shape[0], -1)


@needs_kernels
@pytest.mark.parametrize(
    "kind", ["F32", "F16", "BF16", "Q8_0", "Q5_0", "Q5_1", "Q4_0", "Q4_1", "Q4_K", "Q6_K", "Q3_K"]
)
def test_packed_weights_compute_nearly_as_in_float32(
    wide: TinyModel, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind.endswith("_K"):
        monkeypatch.setattr(gguf, "quantize", random_blocks)
    path = write_gguf(tmp_path / "model.gguf", wide.reference, kind=kind)
    tokens = some_tokens(20)
    exact = last_logits(path, tokens, torch.float32, torch.float32)
    packed = last_logits(path, tokens, None, torch.float16)
    # most of it by the cache; but Q3_K has no kernel, and is rounded anew to 8 bits
    assert 0 < distance(packed, exact) < (0.05 if kind == "Q3_K" else 0.002)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits(wide: TinyModel, dtype: torch.dtype) -> None:
    tokens = some_tokens(20)
    expected = wide.logits(tokens)[-1]
    assert 0 < distance(last_logits(wide.folder, tokens, dtype, dtype), expected) < 0.02


@needs_kernels
def test_files_in_sixteen_bits_are_kept_exactly(wide: TinyModel, tmp_path: Path) -> None:
    model: Any = wide.reference
    model.to(torch.float16).save_pretrained(tmp_path)
    model.to(torch.float32)
    tokens = some_tokens(20)
    kept = last_logits(tmp_path, tokens, None, torch.float32)
    exact = last_logits(tmp_path, tokens, torch.float32, torch.float32)
    torch.testing.assert_close(kept, exact, atol=1e-5, rtol=1e-5)


@needs_kernels
def test_rope_factors_of_the_file_are_used(wide: TinyModel, tmp_path: Path) -> None:
    plain = write_gguf(tmp_path / "plain.gguf", wide.reference)
    scaled = write_gguf(tmp_path / "scaled.gguf", wide.reference, add_rope_freqs=True)
    tokens = some_tokens(40)
    results = [last_logits(p, tokens, torch.float32, torch.float32) for p in (plain, scaled)]
    assert distance(*results) > 0.01


@needs_kernels
def test_scales_that_are_no_numbers_are_refused(wide: TinyModel, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", wide.reference, kind="Q8_0")
    source = open_weights(path)
    entry = source.file.tensors["blk.1.ffn_up.weight"]  # type: ignore[attr-defined]
    damaged = bytearray(path.read_bytes())
    damaged[entry.offset : entry.offset + 2] = b"\x00\x7e"  # a NaN
    path.write_bytes(damaged)
    with pytest.raises(ModelError, match=r"up_proj\.weight has values that are not finite"):
        load(path, configure("packed"))


@needs_kernels
def test_a_file_cut_short_is_refused(wide: TinyModel, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", wide.reference, kind="Q8_0")
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(ModelError, match="is truncated"):
        load(path, configure("packed"))


@needs_kernels
@pytest.mark.parametrize(("dtype", "size"), [("auto", 2), ("packed", 2), ("float32", 4)])
def test_the_cache_is_sized_by_its_type(wide: TinyModel, dtype: DType, size: int) -> None:
    block = 3 * 2 * 2 * 64 * 16 * size  # layers, key and value, KV heads, head size, tokens
    config = replace(configure(dtype), cache=CacheConfig(kv_cache_bytes=21 * block + 5))
    assert load(wide.folder, config).allocate_cache().num_blocks == 20


@needs_kernels
def test_the_kernels_compute_by_default(wide: TinyModel) -> None:
    assert isinstance(loaded(wide.folder, "auto").inner, NativeExecutor)


@needs_kernels
def test_loading_says_that_kernels_compile(
    wide: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages: list[str] = []

    def load_anew() -> None:
        CpuExecutor(configure(), wide.folder).load(lambda stage, _: stages.append(stage))

    load_anew()
    assert not any("compiling" in stage for stage in stages)
    monkeypatch.setenv("QUIRE_CACHE", str(tmp_path))  # the library is loaded: none is compiled
    load_anew()
    assert any(stage.startswith("compiling the CPU kernels, once") for stage in stages)


def test_a_model_without_kernels_is_left_to_torch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_llama(tmp_path, head_dim=12).folder
    with caplog.at_level(logging.WARNING):
        assert isinstance(loaded(folder, "auto").inner, TorchExecutor)
    assert "the head size 12 is no multiple of 8" in caplog.text
    with pytest.raises(ConfigError, match="dtype bfloat16 needs the CPU kernels"):
        loaded(folder, "bfloat16")
    with pytest.raises(ConfigError, match="batch_invariant needs the CPU kernels"):
        loaded(folder, "auto", batch_invariant=True)


SCRIPT = """
import logging, sys
from pathlib import Path
from quire_engine.config import CacheConfig, EngineConfig, ExecutorConfig
from quire_engine.execution.factory import create_executor
logging.basicConfig(format="%(message)s")
config = EngineConfig(
    executor=ExecutorConfig(num_threads=1, device="cpu"), cache=CacheConfig(max_num_blocks=20)
)
for _ in range(2):
    executor = create_executor(config, Path(sys.argv[1]))
    executor.load(lambda *_: None)
print(type(executor.inner).__name__)
"""


def test_without_a_compiler_torch_computes_and_says_why_once(
    wide: TinyModel, tmp_path: Path
) -> None:
    environment = {**os.environ, "PATH": "", "QUIRE_CACHE": str(tmp_path)}
    environment.pop("CXX", None)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(wide.folder)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "TorchExecutor"
    assert done.stderr.count("no CPU kernels, torch computes instead") == 1


def loaded(path: Path, dtype: DType, *, batch_invariant: bool = False) -> CpuExecutor:
    threads = torch.get_num_threads()
    config = replace(configure(), model=ModelConfig(dtype=dtype))
    chosen = replace(config.executor, device="cpu", batch_invariant=batch_invariant)
    executor = create_executor(replace(config, executor=chosen), path)
    assert isinstance(executor, CpuExecutor)
    executor.load(silent)
    torch.set_num_threads(threads)
    return executor
