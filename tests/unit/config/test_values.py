"""What each setting accepts, given as text (flags, environment) and as JSON."""

import pytest

from quire_engine.config.fields import by_name
from quire_engine.config.values import accepted, nearest, read_json, read_text, split
from quire_engine.errors import ConfigError

GOOD_TEXTS = [
    ("block_size", "32", 32),
    ("block_size", " 64 ", 64),
    ("max_num_seqs", "1", 1),
    ("port", "0", 0),
    ("port", "65535", 65535),
    ("gpu_memory_utilization", "1", 1.0),
    ("gpu_memory_utilization", "1e-3", 0.001),
    ("simulated_step_seconds", "0", 0.0),
    ("dtype", "bfloat16", "bfloat16"),
    ("enable_prefix_caching", "false", False),
    ("enable_prefix_caching", "ON", True),
    ("sha256", "aB" * 32, "aB" * 32),
    ("served_model_name", "123", "123"),
    ("max_model_len", "8k", 8000),
    ("max_model_len", "8K", 8192),
    ("max_num_batched_tokens", "2.5k", 2500),
    ("kv_cache_bytes", "4G", 4 << 30),
]

BAD_TEXTS = [
    ("block_size", "17"),
    ("block_size", "-16"),
    ("max_num_seqs", "0"),
    ("max_num_seqs", "many"),
    ("max_num_seqs", "1.5"),
    ("max_num_seqs", ""),
    ("port", "65536"),
    ("port", "-1"),
    ("gpu_memory_utilization", "0"),
    ("gpu_memory_utilization", "1.01"),
    ("gpu_memory_utilization", "nan"),
    ("drain_seconds", "inf"),
    ("request_timeout_seconds", "0"),
    ("dtype", "float8"),
    ("enable_prefix_caching", "maybe"),
    ("sha256", "abc"),
    ("sha256", "g" * 64),
    ("max_model_len", "1"),
    ("max_model_len", "null"),
    ("max_model_len", "8q"),
    ("max_model_len", "1.0001k"),
    ("source", " "),
    ("max_num_blocks", "99999999999"),
]


@pytest.mark.parametrize(("name", "text", "value"), GOOD_TEXTS)
def test_good_text_is_read(name: str, text: str, value: object) -> None:
    found = read_text(by_name()[name], text, "somewhere")
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(("name", "text"), BAD_TEXTS)
def test_bad_text_is_refused_with_place_value_and_what_is_accepted(name: str, text: str) -> None:
    setting = by_name()[name]
    with pytest.raises(ConfigError) as caught:
        read_text(setting, text, "this place")
    message = str(caught.value)
    assert message.startswith("this place is ")
    assert (f'"{text}"' if text.strip() else "empty") in message
    assert message.endswith(f"but accepts {accepted(setting)}")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("block_size", "16"),
        ("block_size", True),
        ("block_size", None),
        ("block_size", [16]),
        ("max_num_seqs", 1.5),
        ("enable_prefix_caching", 1),
        ("host", 5),
        ("drain_seconds", "3"),
    ],
)
def test_json_must_have_the_right_type(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=r"file: x is .* but accepts"):
        read_json(by_name()[name], value, "file: x")


def test_null_in_json_is_not_set() -> None:
    assert read_json(by_name()["max_num_blocks"], None, "file") is None


def test_a_long_value_is_shortened_in_the_message() -> None:
    with pytest.raises(ConfigError) as caught:
        read_text(by_name()["port"], "9" * 10_000, "--port")
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("block_size", "one of 16, 32, 64"),
        ("device", "one of auto, cpu, cuda"),
        ("port", "a whole number, at least 0 and at most 65535"),
        ("gpu_memory_utilization", "a number, greater than 0 and at most 1"),
        ("enable_prefix_caching", "true or false"),
        ("sha256", "64 hexadecimal digits"),
        ("host", "text that is not empty"),
    ],
)
def test_what_is_accepted_is_said_in_words(name: str, words: str) -> None:
    assert accepted(by_name()[name]) == words


def test_the_nearest_name_is_named_only_when_it_is_near() -> None:
    assert nearest("blok_size", ["block_size", "port"]) == "; did you mean block_size?"
    assert nearest("zzz", ["block_size", "port"]) == ""


def test_a_secret_is_never_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        read_json(by_name()["api_key"], {"key": "sk-hidden"}, "a.json")
    assert "sk-hidden" not in str(caught.value)
    assert "a.json is not that" in str(caught.value)


def test_an_array_stands_for_several_texts() -> None:
    setting = by_name()["served_model_name"]
    assert read_json(setting, ["a", "b"], "a.json") == "a,b"
    assert split("a, b,,") == ("a", "b")
    assert split(None) == ()
    with pytest.raises(ConfigError, match="has a comma"):
        read_json(setting, ["a,b", "c"], "a.json")
    with pytest.raises(ConfigError, match="accepts text"):
        read_json(setting, [1], "a.json")
