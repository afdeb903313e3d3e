"""The GGUF container against the gguf package, and against damage."""

from contextlib import suppress
from pathlib import Path

import gguf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quire_engine.errors import ModelError
from quire_engine.models.decoder import load_decoder_weights
from quire_engine.models.facts import read_model_spec
from quire_engine.models.loading.ggml_types import GGML_TYPES
from quire_engine.models.loading.gguf import GGUFWeights
from quire_engine.models.loading.gguf_file import open_gguf
from tests.unit.models.builders import make_llama, write_gguf


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gguf")
    tiny = make_llama(folder / "hf", num_hidden_layers=1, hidden_size=32, vocab_size=32)
    return write_gguf(folder / "tiny.gguf", tiny.reference, kind="Q8_0")


def test_reads_what_the_gguf_package_reads(tmp_path: Path) -> None:
    path = tmp_path / "all.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("a.uint8", 200)
    writer.add_int8("a.int8", -3)
    writer.add_uint16("a.uint16", 60000)
    writer.add_int16("a.int16", -30000)
    writer.add_int32("a.int32", -(2**31))
    writer.add_uint64("a.uint64", 2**63)
    writer.add_int64("a.int64", -(2**60))
    writer.add_float32("a.float32", 0.1)
    writer.add_float64("a.float64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.string", "zwölf 十二 🙂")
    writer.add_array("a.strings", ["", "ä", "bc"])
    writer.add_array("a.numbers", [1, 2, 3])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    fields = gguf.GGUFReader(path).fields
    expected = {k: f.contents() for k, f in fields.items() if not k.startswith("GGUF.")}
    assert open_gguf(path).metadata == expected


def test_tensors_lie_where_the_gguf_package_says(model: Path) -> None:
    tensors = open_gguf(model).tensors
    for expected in gguf.GGUFReader(model).tensors:
        found = tensors[expected.name]
        assert found.offset == expected.data_offset
        assert found.shape == tuple(reversed(expected.shape.tolist()))
        assert found.type_id == expected.tensor_type


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_truncated_file_is_refused(model: Path, tmp_path: Path, data: st.DataObject) -> None:
    whole = model.read_bytes()
    cut = tmp_path / "cut.gguf"
    end = max(end_of(tensor) for tensor in gguf.GGUFReader(model).tensors)
    cut.write_bytes(whole[: data.draw(st.integers(0, end - 1))])
    with pytest.raises(ModelError, match=r"truncated|cannot be read"):
        open_gguf(cut)


def end_of(tensor: gguf.ReaderTensor) -> int:
    return int(tensor.data_offset + tensor.n_bytes)


def test_the_last_byte_is_missed_before_any_weight_is_read(model: Path, tmp_path: Path) -> None:
    end = max(end_of(tensor) for tensor in gguf.GGUFReader(model).tensors)
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(model.read_bytes()[: end - 1])
    with pytest.raises(ModelError, match=rf"truncated: .* ends at byte {end} of {end - 1}; fetch"):
        read_model_spec(cut)
    cut.write_bytes(model.read_bytes()[:end])  # padding behind the last tensor may be left out
    read_model_spec(cut)


def test_sizes_of_types_are_those_of_the_gguf_package() -> None:
    for number, kind in GGML_TYPES.items():
        known = gguf.GGMLQuantizationType(number)
        assert known.name == kind.name
        assert gguf.GGML_QUANT_SIZES[known] == (kind.block_values, kind.block_bytes)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_damage_is_never_more_than_a_model_error(
    model: Path, tmp_path: Path, data: st.DataObject
) -> None:
    content = bytearray(model.read_bytes())
    content[data.draw(st.integers(0, 2500))] = data.draw(st.integers(0, 255))
    path = tmp_path / "flipped.gguf"
    path.write_bytes(content)
    with suppress(ModelError):
        load_decoder_weights(GGUFWeights(path), lambda _: None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read"),
        (b"GG", "truncated"),
        (b"PK\x03\x04" + bytes(60), "no GGUF file: it begins with"),
        (b"GGUF" + (1).to_bytes(4, "little") + bytes(60), "version 1; supported are 2 and 3"),
        (b"GGUF" + (3).to_bytes(4, "big") + bytes(60), "little-endian"),
    ],
)
def test_what_is_no_gguf_file_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message):
        open_gguf(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"absent\.gguf cannot be read"):
        read_model_spec(tmp_path / "absent.gguf")


def test_another_architecture_is_refused_with_what_is_supported(tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    writer = gguf.GGUFWriter(path, "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ModelError, match=r"mamba is not supported; supported are gemma2, .*n3"):
        read_model_spec(path)
