"""Hugging Face folders: shards, and every fault that a file may have."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from quire_engine.errors import ModelError
from quire_engine.models.decoder import load_decoder_weights
from quire_engine.models.facts import read_model_spec
from quire_engine.models.loading.weights import open_weights
from tests.unit.models.builders import make_llama

WEIGHTS = "model.safetensors"
NAME = "model.layers.1.mlp.up_proj.weight"


def load(folder: Path) -> None:
    load_decoder_weights(open_weights(folder), lambda _: None)


def change_tensor(folder: Path, change: Callable[[torch.Tensor], torch.Tensor | None]) -> None:
    tensors = load_file(folder / WEIGHTS)
    changed = change(tensors.pop(NAME))
    if changed is not None:
        tensors[NAME] = changed
    save_file(tensors, folder / WEIGHTS)


def change_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_llama(tmp_path).folder


def test_shards_are_read_as_one(tmp_path: Path) -> None:
    whole, cut = make_llama(tmp_path / "whole"), make_llama(tmp_path / "cut", shard_size="50KB")
    assert len(list(cut.folder.glob("*.safetensors"))) > 3
    sources = [open_weights(tiny.folder) for tiny in (whole, cut)]
    for name, tensor in whole.reference.state_dict().items():
        for source in sources:
            assert torch.equal(source.tensor(name, tuple(tensor.shape)), tensor)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(folder: Path, dtype: torch.dtype) -> None:
    change_tensor(folder, lambda tensor: tensor.to(dtype))
    found = open_weights(folder).tensor(NAME, (96, 64))
    assert found.dtype == torch.float32
    assert torch.equal(found, found.to(dtype).float())


def test_progress_ends_at_one(folder: Path) -> None:
    heard: list[float] = []
    load_decoder_weights(open_weights(folder), heard.append)
    assert heard == sorted(heard)
    assert heard[-1] == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda _: None, f"tensor {NAME} is missing"),
        (
            lambda tensor: tensor[1:].contiguous(),
            r"has shape \(95, 64\), but .* ask for \(96, 64\)",
        ),
        (lambda tensor: tensor * torch.nan, "not finite"),
        (lambda tensor: tensor.index_fill(0, torch.tensor(3), torch.inf), "not finite"),
        (lambda tensor: tensor.index_fill(0, torch.tensor(3), -torch.inf), "not finite"),
        (lambda tensor: tensor.index_fill(0, torch.tensor(3), torch.nan), "not finite"),
        (lambda tensor: tensor.to(torch.int8), "has type I8, .* supported are F32, F16, BF16"),
    ],
)
def test_a_wrong_tensor_is_named(
    folder: Path, change: Callable[[torch.Tensor], torch.Tensor | None], message: str
) -> None:
    change_tensor(folder, change)
    with pytest.raises(ModelError, match=message):
        load(folder)


def test_a_missing_output_matrix_is_not_taken_for_a_tied_one(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    del tensors["lm_head.weight"]
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(ModelError, match=r"lm_head\.weight is missing"):
        load(folder)
    change_config(folder, tie_word_embeddings=True)
    load(folder)


@pytest.mark.parametrize("num_bytes", [0, 4, 100, 20000])
def test_a_truncated_file_is_named(folder: Path, num_bytes: int) -> None:
    path = folder / WEIGHTS
    path.write_bytes(path.read_bytes()[:num_bytes])
    with pytest.raises(ModelError, match=r"model\.safetensors is damaged or truncated"):
        load(folder)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = make_llama(tmp_path, shard_size="50KB").folder
    lost = sorted(folder.glob("*.safetensors"))[1]
    lost.unlink()
    with pytest.raises(ModelError, match=f"lacks the shard {lost.name}"):
        load(folder)


def test_an_index_that_names_a_tensor_where_it_is_not(tmp_path: Path) -> None:
    folder = make_llama(tmp_path, shard_size="50KB").folder
    path = folder / "model.safetensors.index.json"
    files = json.loads(path.read_text())["weight_map"]
    other = next(file for file in files.values() if file != files[NAME])
    for changed in ({NAME: other}, {"model.layers.9.mlp.up_proj.weight": other}):
        path.write_text(json.dumps({"weight_map": files | changed}))
        with pytest.raises(ModelError, match=f"has tensor {next(iter(changed))} in {other}, which"):
            load(folder)


def test_an_index_without_a_map_is_named(tmp_path: Path) -> None:
    folder = make_llama(tmp_path, shard_size="50KB").folder
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    with pytest.raises(ModelError, match="has no weight_map"):
        load(folder)


def test_an_index_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    folder = make_llama(tmp_path, shard_size="50KB").folder
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {NAME: "../secret.safetensors"}}))
    with pytest.raises(ModelError, match="not a file of this folder"):
        load(folder)


def test_no_weights_at_all(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    with pytest.raises(ModelError, match=r"has neither model\.safetensors nor"):
        load(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"architectures": ["FooForCausalLM"]},
            "FooForCausalLM is not supported; supported are Gemma2ForCausalLM, .*, Qwen3For",
        ),
        ({"architectures": None}, r"architecture \(none named\) is not supported"),
        ({"hidden_size": "64"}, "hidden_size must be a positive integer, not '64'"),
        ({"num_hidden_layers": None}, "num_hidden_layers is missing"),
        ({"num_key_value_heads": 3}, "4 attention heads are no multiple of its 3 key-value heads"),
        ({"rms_norm_eps": -1}, "rms_norm_eps must be a positive number, not -1"),
        ({"rms_norm_eps": float("inf")}, "rms_norm_eps must be a positive number, not inf"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps must be a positive number, not nan"),
        ({"rms_norm_eps": 50}, "norm_epsilon of 50.0 is absurd: at most 1.0 is supported"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers of 1000000000 is absurd: at most 4096"),
        (
            {
                "architectures": ["MistralForCausalLM"],
                "sliding_window": 8,
                "num_hidden_layers": 10**6,
            },
            "num_hidden_layers of 1000000 is absurd",  # before its windows are listed
        ),
        ({"vocab_size": 10**12}, "vocab_size of 1000000000000 is absurd"),
        ({"max_position_embeddings": 10**15}, "context_length of 1000000000000000 is absurd"),
        ({"hidden_size": 0}, "hidden_size must be a positive integer, not 0"),
        ({"head_dim": 15}, "needs an even head size, not 15"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings must be true or false, not 'yes'"),
        ({"rope_parameters": {"rope_type": "linear"}}, "rope_parameters: factor is missing"),
        (
            {"rope_parameters": {"rope_type": "longrope", "short_factor": [1], "long_factor": 1}},
            "short_factor must be 8 positive numbers",
        ),
        ({"partial_rotary_factor": 0.2}, "3 values of a head of 16 are to rotate, which must be"),
        (
            {"architectures": ["MistralForCausalLM"], "layer_types": ["full_attention"]},
            "layer_types must name full_attention or sliding_attention for each of 3 layers",
        ),
        (
            {"architectures": ["Gemma2ForCausalLM"], "hidden_activation": "gelu"},
            "hidden_activation 'gelu' is not supported",
        ),
        ({"attention_bias": True}, "attention_bias True is not supported; supported is False"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported; supported is 'silu'"),
        (
            {"rope_parameters": {"rope_type": "axial"}},
            "'axial' is not supported; supported are d",
        ),
        ({"rope_parameters": 3}, "rope_parameters must be a table"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization 'awq' is not supported"),
        ({"eos_token_id": "x"}, "eos_token_id must be token ids"),
    ],
)
def test_a_config_that_is_not_supported(
    folder: Path, changes: dict[str, object], message: str
) -> None:
    change_config(folder, **changes)
    (folder / "generation_config.json").unlink(missing_ok=True)
    with pytest.raises(ModelError, match=message):
        read_model_spec(folder)


def test_older_rope_settings(folder: Path) -> None:
    scaling = {"type": "linear", "factor": 2.0}
    change_config(folder, rope_parameters=None, rope_theta=777.0, rope_scaling=scaling)
    rope = read_model_spec(folder).rope
    assert rope.theta == 777.0
    assert rope.scaling is not None
    assert rope.scaling.factor == 2.0


def test_generation_config_names_the_end_tokens(folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"eos_token_id": [5, 6]}')
    assert read_model_spec(folder).eos_token_ids == (5, 6)


def test_a_folder_without_config_says_what_a_model_is(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no config\.json; a model is a \.gguf file, or"):
        read_model_spec(tmp_path)
