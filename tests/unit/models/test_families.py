"""Each family computes the logits that transformers computes, on both executors of the CPU.

Texts are longer than the windows, and come in chunks and single tokens.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from quire_engine.execution.native_cpu.loading import decoder_shape, load_decoder, missing_feature
from quire_engine.execution.native_cpu.matrices import open_matrices
from quire_engine.models.facts import read_model_spec
from quire_engine.models.loading.weights import open_weights
from quire_kernels.cpu import Decoder as NativeDecoder
from quire_kernels.cpu import StepInputs, Team, unavailable_reason
from tests.unit.models.builders import TinyModel
from tests.unit.models.families import (
    FAMILIES,
    WINDOW,
    Family,
    make_family,
    make_seeing_gemma3,
    some_tokens,
    write_family_gguf,
)
from tests.unit.models.test_decoder import Paged, assert_close

needs_kernels = pytest.mark.skipif(unavailable_reason() is not None, reason="no C++ compiler")

EDGES = [0, 37, 38, 39, 80, 81, 110, *range(111, 121)]
"""Where a text of 120 tokens is cut."""
SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {"factor": 8.0, "original_max_position_embeddings": 32},
    "yarn with an attention factor": {
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "attention_factor": 1.7,
        "beta_fast": 4.0,
        "beta_slow": 0.5,
        "truncate": False,
    },
    "yarn with two scales": {
        "factor": 4.0,
        "original_max_position_embeddings": 64,
        "mscale": 0.7,
        "mscale_all_dim": 0.3,
    },
}


def with_rope(name: str) -> dict[str, Any]:
    kind = name.partition(" ")[0]
    parameters = {"rope_type": kind, "rope_theta": 500.0, **SCALINGS[name]}
    # the length that is served, 120, is beyond the one of the model's training
    # an attention factor makes rounding errors grow: transformers' own are 3e-4 at a range of 0.3
    return {
        "rope_parameters": parameters,
        "max_position_embeddings": 60,
        "initializer_range": 0.2,
    }


def torch_logits(path: Path, tokens: list[int], num_positions: int = 256) -> torch.Tensor:
    """[len(tokens), vocab], computed in parts."""
    paged = Paged(path, num_positions=num_positions)
    parts = [
        paged.logits([(0, start, tokens[start:end])], num_decodes=int(end - start == 1))
        for start, end in pairwise(EDGES)
    ]
    return torch.cat(parts)


def native_logits(path: Path, tokens: list[int], num_positions: int = 256) -> torch.Tensor:
    """[number of parts, vocab]: of the last token of each."""
    source, team = open_weights(path), Team(1)
    weights = load_decoder(
        open_matrices(source, team, torch.float32), num_positions, lambda _: None
    )
    shape = decoder_shape(source.spec)
    blocks = -(-len(tokens) // 16)
    size = (blocks + 1, source.spec.num_layers, 2, shape.num_kv_heads, 16, shape.head_dim)
    decoder, cache = NativeDecoder(shape, weights, team), torch.zeros(size)
    table = torch.arange(1, blocks + 1, dtype=torch.int32)[None]
    rows = []
    for start, end in pairwise(EDGES):
        inputs = StepInputs(
            rows=torch.zeros(1, dtype=torch.int32),
            starts=torch.tensor([start], dtype=torch.int32),
            num_tokens=torch.tensor([end - start], dtype=torch.int32),
            samples=torch.ones(1, dtype=torch.bool),
            token_ids=torch.tensor(tokens[start:end], dtype=torch.int32),
            block_tables=table,
        )
        rows.append(decoder.step(inputs, cache)[0])
    return torch.stack(rows)


def ends_of(logits: torch.Tensor) -> torch.Tensor:
    return logits[[end - 1 for end in EDGES[1:]]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TinyModel]:
    return {
        name: make_family(tmp_path_factory.mktemp("model"), family)
        for name, family in FAMILIES.items()
    }


@pytest.mark.parametrize("name", FAMILIES)
def test_torch_computes_what_transformers_does(models: dict[str, TinyModel], name: str) -> None:
    tokens = some_tokens(120)
    assert_close(torch_logits(models[name].folder, tokens), models[name].logits(tokens))


@needs_kernels
@pytest.mark.parametrize("name", FAMILIES)
def test_the_kernels_compute_what_transformers_does(
    models: dict[str, TinyModel], name: str
) -> None:
    tokens = some_tokens(120)
    assert_close(native_logits(models[name].folder, tokens), ends_of(models[name].logits(tokens)))


GGUF_FAMILIES = [name for name in FAMILIES if name != "qwen2 with a window"]
"""No key of Qwen2's GGUF files states a window."""


@pytest.mark.parametrize("name", GGUF_FAMILIES)
def test_a_gguf_file_computes_the_same(
    models: dict[str, TinyModel], tmp_path: Path, name: str
) -> None:
    tokens = some_tokens(120)
    if FAMILIES[name].config.startswith("Gemma"):
        models = models | {name: without_odd_scale(tmp_path / "model", FAMILIES[name])}
    path = write_family_gguf(tmp_path / "tiny.gguf", FAMILIES[name], models[name])
    assert_close(torch_logits(path, tokens), models[name].logits(tokens))


def without_odd_scale(folder: Path, family: Family) -> TinyModel:
    """A Gemma whose attention is scaled by its head size, as in all but those of 27B."""
    return make_family(folder, family, query_pre_attn_scalar=family.changes["head_dim"])


@needs_kernels
@pytest.mark.parametrize("kind", ["F32", "Q8_0", "Q4_1"])
@pytest.mark.parametrize("name", ["llama", "qwen2", "phi3 of which a part rotates", "gemma3"])
def test_packed_rows_are_taken_out_in_order(tmp_path: Path, name: str, kind: str) -> None:
    tiny = make_family(tmp_path / "model", FAMILIES[name])
    path = write_family_gguf(tmp_path / "tiny.gguf", FAMILIES[name], tiny, kind)
    source, team = open_weights(path), Team(1)
    packed, dense = (open_matrices(source, team, dtype) for dtype in (None, torch.float32))
    exact = load_decoder(dense, 256, lambda _: None).layers[1]
    kept = load_decoder(packed, 256, lambda _: None).layers[1]
    x = torch.eye(source.spec.hidden_size)
    for role in ("query", "key", "value", "gate", "up"):
        expected = multiply(getattr(exact, role), x, team)
        found = multiply(getattr(kept, role), x, team)
        assert (found - expected).abs().max() < 0.02 * expected.abs().max()


def multiply(matrix: Any, x: torch.Tensor, team: Team) -> torch.Tensor:
    from quire_kernels.cpu.ops import matmul

    return matmul(x, matrix, team)


@pytest.mark.parametrize("name", SCALINGS)
def test_rope_scalings(tmp_path: Path, name: str) -> None:
    tiny = make_family(tmp_path, FAMILIES["llama"], **with_rope(name))
    tokens = some_tokens(120)
    assert_close(torch_logits(tmp_path, tokens, num_positions=120), tiny.logits(tokens))


@needs_kernels
@pytest.mark.parametrize("name", SCALINGS)
def test_rope_scalings_of_the_kernels(tmp_path: Path, name: str) -> None:
    tiny = make_family(tmp_path, FAMILIES["llama"], **with_rope(name))
    tokens = some_tokens(120)
    assert_close(native_logits(tmp_path, tokens, num_positions=120), ends_of(tiny.logits(tokens)))


@pytest.mark.parametrize(("name", "context"), [
    ("linear", 240), ("dynamic", 240), ("llama3", 60), ("yarn", 256),
])  # fmt: skip
def test_a_scaling_lengthens_the_context(tmp_path: Path, name: str, context: int) -> None:
    make_family(tmp_path, FAMILIES["llama"], **with_rope(name))
    assert read_model_spec(tmp_path).context_length == context


@pytest.mark.parametrize("name", ["linear", "yarn"])
def test_rope_scalings_of_gguf_files(tmp_path: Path, name: str) -> None:
    tiny = make_family(tmp_path / "model", FAMILIES["qwen2"], **with_rope(name))
    path = write_family_gguf(tmp_path / "tiny.gguf", FAMILIES["qwen2"], tiny)
    tokens = some_tokens(120)
    assert_close(torch_logits(path, tokens), tiny.logits(tokens))


def longrope(share: float) -> dict[str, Any]:
    num_pairs = int(16 * share) // 2
    return {
        "max_position_embeddings": 256,
        "original_max_position_embeddings": 120,
        "initializer_range": 0.2,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 500.0,
            "partial_rotary_factor": share,
            "short_factor": [1.0 + 0.1 * pair for pair in range(num_pairs)],
            "long_factor": [1.5 + 0.7 * pair for pair in range(num_pairs)],
            "original_max_position_embeddings": 120,
        },
    }


@pytest.mark.parametrize("share", [1.0, 0.75])
@pytest.mark.parametrize("is_gguf", [False, True])
def test_longrope_up_to_the_original_length(tmp_path: Path, share: float, is_gguf: bool) -> None:
    tiny = make_family(tmp_path / "model", FAMILIES["phi3"], **longrope(share))
    path = tiny.folder
    if is_gguf:
        path = write_family_gguf(tmp_path / "tiny.gguf", FAMILIES["phi3"], tiny)
    tokens = some_tokens(120)
    assert_close(torch_logits(path, tokens, num_positions=120), tiny.logits(tokens))


@pytest.mark.parametrize("share", [1.0, 0.75])
def test_longrope_beyond_the_original_length(tmp_path: Path, share: float) -> None:
    # transformers takes the long factors as soon as a text is long; all of it is then
    tiny = make_family(tmp_path, FAMILIES["phi3"], **longrope(share))
    tokens = some_tokens(160)
    found = torch_logits(tmp_path, tokens[:120], num_positions=256)
    assert_close(found, tiny.logits(tokens)[:120])


@needs_kernels
def test_longrope_of_the_kernels(tmp_path: Path) -> None:
    tiny = make_family(tmp_path, FAMILIES["phi3"], **longrope(1.0))
    tokens = some_tokens(120)
    found = native_logits(tmp_path, tokens, num_positions=120)
    assert_close(found, ends_of(tiny.logits(tokens)))


def test_what_the_kernels_cannot_scale_is_left_to_torch(tmp_path: Path) -> None:
    make_family(tmp_path, FAMILIES["phi3"], **longrope(0.75))
    reason = missing_feature(read_model_spec(tmp_path))
    assert reason == "a part of each head rotates, and is scaled by an attention factor"


def test_a_family_in_shards(tmp_path: Path) -> None:
    tiny = make_family(tmp_path, FAMILIES["phi3"], shard_size="50KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    tokens = some_tokens(120)
    assert_close(torch_logits(tmp_path, tokens), tiny.logits(tokens))


def test_older_configs_of_gemma3(tmp_path: Path) -> None:
    """Before transformers 5 the two rotary embeddings were `rope_theta` and a local base."""
    import json

    tiny = make_family(tmp_path, FAMILIES["gemma3"])
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    del values["rope_parameters"], values["layer_types"]
    scaling = {"rope_type": "linear", "factor": 8.0}
    older = {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": scaling}
    path.write_text(json.dumps(values | older | {"sliding_window_pattern": 6}))
    spec = read_model_spec(tmp_path)
    assert (spec.rope.theta, spec.windowed_rope and spec.windowed_rope.theta) == (1e6, 1e4)
    assert spec.rope.scaling is not None
    assert spec.windowed_rope is not None
    assert spec.windowed_rope.scaling is None
    assert spec.context_length == tiny.reference.config.max_position_embeddings
    assert [spec.window_of(layer) for layer in range(7)] == [*[WINDOW] * 5, 0, WINDOW]


@pytest.mark.parametrize("is_older", [False, True])
def test_the_text_part_of_a_gemma3_that_sees(tmp_path: Path, is_older: bool) -> None:
    tiny = make_seeing_gemma3(tmp_path)
    if is_older:  # transformers 4.51 and before
        path = tmp_path / "model.safetensors"
        tensors = load_file(path)
        old = {name.replace("model.language_model.", "language_model.model."): tensor
               for name, tensor in tensors.items()}  # fmt: skip
        save_file(old, path)
    tokens = some_tokens(120)
    assert_close(torch_logits(tmp_path, tokens), tiny.logits(tokens))
    assert read_model_spec(tmp_path).eos_token_ids == (2, 7)
