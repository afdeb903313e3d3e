"""Dequantisation is the gguf package's, bit for bit; what can't be read is refused."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from quire_engine.errors import ModelError
from quire_engine.models.loading.ggml_types import GGML_TYPES
from quire_engine.models.loading.gguf import dequantize
from quire_engine.models.loading.gguf_file import open_gguf

SHAPE = (6, 512)


def write_tensor(path: Path, kind: str, raw: np.ndarray) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("weight", raw, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def random_content(kind: str) -> np.ndarray:
    """Any bytes are some weights: scales are kept finite, as the test compares numbers."""
    rng = np.random.default_rng(5)
    if kind in ("F32", "F16"):
        dtype = np.float32 if kind == "F32" else np.float16
        return rng.standard_normal(SHAPE).astype(dtype)
    values_per_block, bytes_per_block = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    shape = (SHAPE[0], SHAPE[1] // values_per_block * bytes_per_block)
    return rng.integers(0, 60, shape, dtype=np.uint8)


@pytest.mark.parametrize("kind", [kind.name for kind in GGML_TYPES.values()])
def test_bit_for_bit(tmp_path: Path, kind: str) -> None:
    raw = random_content(kind)
    file = open_gguf(write_tensor(tmp_path / "one.gguf", kind, raw))
    expected = gguf.dequantize(raw, gguf.GGMLQuantizationType[kind])
    found = dequantize(file, file.tensors["weight"])
    assert found.shape == SHAPE
    assert np.isfinite(expected).all()
    assert np.abs(expected).max() > 0
    assert found.tobytes() == np.ascontiguousarray(expected, dtype=np.float32).tobytes()


def test_an_unsupported_type_is_refused_with_what_is_supported(tmp_path: Path) -> None:
    path = write_tensor(tmp_path / "one.gguf", "IQ2_S", random_content("IQ2_S"))
    file = open_gguf(path)
    with pytest.raises(ModelError, match=r"has type IQ2_S, .* supported are F32, F16, .*BF16"):
        dequantize(file, file.tensors["weight"])
