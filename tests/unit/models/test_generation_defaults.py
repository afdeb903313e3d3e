"""What a model's makers say of sampling, and what they cannot say."""

import json
from pathlib import Path

import gguf
import pytest

from quire_engine.errors import ModelError
from quire_engine.models.families.gguf_ends import read_end_tokens
from quire_engine.models.generation_defaults import GenerationDefaults, read_generation_defaults
from quire_engine.models.metadata import Facts

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 64,
    "max_position_embeddings": 128,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "rms_norm_eps": 1e-5,
    "eos_token_id": 2,
}


def folder_of(tmp_path: Path, generation: dict[str, object] | None) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    return tmp_path


def test_a_folder_says_how_to_sample_and_all_its_end_tokens(tmp_path: Path) -> None:
    said = {
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": 20,
        "min_p": 0.1,
        "repetition_penalty": 1.05,
    }
    others = {"do_sample": False, "eos_token_id": [7, 8, 9]}
    found = read_generation_defaults(folder_of(tmp_path, {**said, **others}))
    assert found == GenerationDefaults(**said, eos_token_ids=(7, 8, 9))  # type: ignore[arg-type]


@pytest.mark.parametrize("generation", [None, {}, {"temperature": None, "top_k": 0}])
def test_what_is_not_said_is_none_and_end_tokens_are_the_models(
    tmp_path: Path, generation: dict[str, object] | None
) -> None:
    found = read_generation_defaults(folder_of(tmp_path, generation))
    assert found == GenerationDefaults(eos_token_ids=(2,))


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("temperature", -1, "a number of at least 0"),
        ("temperature", "hot", "a number"),
        ("temperature", True, "a number"),
        ("top_p", 0, "a number above 0 and up to 1"),
        ("top_p", 1.5, "a number above 0 and up to 1"),
        ("top_k", 2.5, "a whole number of at least -1"),
        ("top_k", -2, "a whole number of at least -1"),
        ("top_k", float("inf"), "a number"),
        ("min_p", 1.5, "a number from 0 to 1"),
        ("repetition_penalty", 0, "a number above 0"),
    ],
)
def test_values_that_cannot_be_used_are_named(
    tmp_path: Path, name: str, value: object, accepted: str
) -> None:
    folder = folder_of(tmp_path, {name: value})
    with pytest.raises(ModelError, match=rf"generation_config\.json: {name} is .* {accepted}"):
        read_generation_defaults(folder)


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    (folder_of(tmp_path, None) / "generation_config.json").write_text("{")
    with pytest.raises(ModelError, match=r"generation_config\.json cannot be read as JSON"):
        read_generation_defaults(tmp_path)


def test_a_gguf_file_says_it_in_its_metadata(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for name, count in (("block_count", 1), ("context_length", 128), ("embedding_length", 16)):
        writer.add_uint32(f"llama.{name}", count)
    writer.add_uint32("llama.feed_forward_length", 32)
    writer.add_uint32("llama.attention.head_count", 2)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_uint32("llama.vocab_size", 64)
    writer.add_uint32("tokenizer.ggml.eos_token_id", 5)
    writer.add_float32("general.sampling.temp", 0.5)
    writer.add_int32("general.sampling.top_k", 40)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert read_generation_defaults(path) == GenerationDefaults(
        temperature=0.5, top_k=40, eos_token_ids=(5,)
    )


def test_the_ends_of_turns_are_found_by_name_in_a_gguf_file() -> None:
    """Phi-3's files name the end of a text alone."""
    facts = {
        "tokenizer.ggml.eos_token_id": 3,
        "tokenizer.ggml.tokens": ["a", "<|end|>", "<|user|>", "<|endoftext|>", "<|im_end|>"],
        "tokenizer.ggml.token_type": [1, 3, 3, 3, 1],
    }
    assert read_end_tokens(Facts(facts, "phi3.gguf")) == (3, 1)
