"""Defaults, file, environment and flags: who wins, and what is refused."""

import json
from pathlib import Path

import pytest

from quire_engine.config import EngineConfig, parse
from quire_engine.errors import ConfigError


def _file(folder: Path, content: object) -> str:
    path = folder / "quire.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_nothing_given_is_the_defaults() -> None:
    assert parse({}, {}) == EngineConfig()


def test_flags_win_over_environment_over_file_over_defaults(tmp_path: Path) -> None:
    file = _file(
        tmp_path,
        {"server": {"port": 1}, "cache": {"block_size": 32}, "scheduler": {"max_num_seqs": 7}},
    )
    environment = {"QUIRE_PORT": "2", "QUIRE_BLOCK_SIZE": "64"}
    config = parse({"port": "3"}, environment, config_file=file)
    assert config.server.port == 3
    assert config.cache.block_size == 64
    assert config.scheduler.max_num_seqs == 7
    assert config.server.host == EngineConfig().server.host


def test_a_switch_is_a_boolean_flag() -> None:
    assert not parse({"enable_prefix_caching": False}, {}).cache.enable_prefix_caching


def test_the_file_may_be_named_by_the_environment_and_a_flag_wins(tmp_path: Path) -> None:
    file = _file(tmp_path, {"server": {"port": 11}})
    assert parse({}, {"QUIRE_CONFIG": file}).server.port == 11
    (tmp_path / "other").mkdir()
    other = _file(tmp_path / "other", {"server": {"port": 12}})
    assert parse({}, {"QUIRE_CONFIG": file}, config_file=other).server.port == 12


def test_null_in_the_file_takes_back_nothing_from_the_environment(tmp_path: Path) -> None:
    file = _file(tmp_path, {"cache": {"max_num_blocks": None}})
    assert parse({}, {"QUIRE_MAX_NUM_BLOCKS": "9"}, config_file=file).cache.max_num_blocks == 9


def test_variables_of_others_are_not_looked_at() -> None:
    environment = {"PORT": "x", "HOME": "/", "QUIRE_TRACE": "a.csv", "QUIRE_CACHE": "/c"}
    assert parse({}, environment) == EngineConfig()


@pytest.mark.parametrize(
    ("variable", "text", "parts"),
    [
        ("QUIRE_BLOCKSIZE", "16", ['QUIRE_BLOCKSIZE="16"', "did you mean QUIRE_BLOCK_SIZE?"]),
        ("QUIRE_ZZZ", "1", ["unknown environment variable", "unset it"]),
        ("QUIRE_PORT", "http", ["QUIRE_PORT", '"http"', "at most 65535"]),
        ("QUIRE_PORT", "", ["QUIRE_PORT is empty"]),
        ("QUIRE_PORT", "tcp://10.0.0.1:80", ["Kubernetes", "enableServiceLinks: false"]),
        ("QUIRE_API_KEYS", "sk-hidden", ["QUIRE_API_KEYS; did you mean QUIRE_API_KEY?"]),
        ("QUIRE_API_KEY", ",", ["api_key has no key in it"]),
        ("QUIRE_GATEWAY_PORT", "tcp://10.0.0.1:80", ["enableServiceLinks: false"]),
        ("QUIRE_DNS_PORT", "udp://10.0.0.1:53", ["enableServiceLinks: false"]),
    ],
)
def test_a_wrong_variable_is_refused(variable: str, text: str, parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse({}, {variable: text})
    for part in parts:
        assert part in str(caught.value)
    assert "sk-hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("{", ["not valid JSON", "line 1"]),
        ("\x00\xff", ["not valid JSON"]),
        ("[]", ["not a JSON object", "model, cache"]),
        ("[" * 100_000, ["nested too deeply"]),
        ({"cach": {}}, ['unknown section "cach"', "did you mean cache?"]),
        ({"block_size": 16}, ['"block_size" belongs in the section "cache"']),
        ({"cache": 3}, ["cache is 3", "an object"]),
        ({"cache": {"blok_size": 16}}, ['unknown setting "blok_size"', "mean block_size?"]),
        ({"cache": {"port": 80}}, ['unknown setting "port" in "cache"', 'belongs in "server"']),
        ({"cache": {"block_size": 20}}, ["cache.block_size is 20", "16, 32, 64"]),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, content: object, parts: list[str]) -> None:
    file = _file(tmp_path, content)
    with pytest.raises(ConfigError) as caught:
        parse({}, {}, config_file=file)
    for part in [file, *parts]:
        assert part in str(caught.value)


def test_a_file_of_vllm_is_refused_with_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text("model: org/name\nport: 8000\n")
    with pytest.raises(ConfigError, match=r"not valid JSON.*give their lines as flags"):
        parse({}, {}, config_file=str(file))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the configuration file .*No such file"):
        parse({}, {}, config_file=str(tmp_path / "none.json"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"simulate": "h100"}, "model_shape is not set: say which model"),
        ({"simulate": "h1", "model_shape": "llama3-8b"}, "unknown GPU 'h1': choose one of t4"),
        ({"simulate": "h100", "model_shape": "x"}, "unknown model shape 'x': choose one of"),
        ({"model_shape": "llama3-8b"}, "model_shape is only for simulated engines"),
        ({"simulated_step_seconds": "0"}, "simulated_step_seconds is only for simulated"),
        (
            {"simulate": "h100", "model_shape": "llama3-8b", "device": "cuda"},
            "device is cuda, but a simulated engine computes on none",
        ),
        ({"simulate": "none.json"}, r"the profile none\.json cannot be read"),
        ({"simulate": "x/y", "model_shape": "llama3-8b"}, "has its model: remove model_shape"),
        ({"max_num_batched_tokens": "100"}, r"\(100\) is less than max_num_seqs \(256\)"),
        ({"drain_seconds": "1"}, r"drain_grace_seconds \(2\) is more than drain_seconds \(1\)"),
    ],
)
def test_contradictions_are_refused(flags: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(flags, {})


def test_a_simulated_engine_is_accepted() -> None:
    config = parse(
        {"simulate": "h100", "model_shape": "llama3-8b", "simulated_step_seconds": "0"}, {}
    )
    assert config.executor.simulated_step_seconds == 0
