"""The seed program's parameters: defaults, where they come from, and what they are here."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from quire_engine.config import EngineConfig
from quire_engine.errors import ConfigError
from quire_local.seeds.command import _parser, read_configuration
from quire_local.seeds.mapping import Mapped
from quire_local.seeds.settings import (
    BackendChoice,
    Limits,
    Serving,
    TokenizerChoice,
    plain_settings,
)

WHOLE_FILE: dict[str, Any] = {
    "block_size": 16,
    "max_num_blocks": 1024,
    "max_batch_size": 32,
    "max_num_seqs": 256,
    "max_model_len": 2048,
    "max_total_tokens": 4096,
    "memory_threshold": 0.9,
    "max_retry_attempts": 2,
    "tokenizer": {"kind": "simple", "path": None},
    "serving": {
        "host": "127.0.0.1",
        "port": 3000,
        "model_name": "hetero-infer",
        "backend": {"kind": "local_engine", "command": None},
    },
}


class Reader:
    """Reads flags, variables and a file as `quire --serve` does."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "config.json"

    def __call__(
        self, *flags: str, file: object = None, env: dict[str, str] | None = None
    ) -> tuple[EngineConfig, Mapped]:
        if file is not None:
            self._path.write_text(file if isinstance(file, str) else json.dumps(file))
            flags = (*flags, "--config", str(self._path))
        return read_configuration(vars(_parser().parse_known(["--serve", *flags])), env or {})


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    return Reader(tmp_path)


def test_the_defaults_are_the_seeds(read: Reader) -> None:
    config, mapped = read()
    assert (config.cache.block_size, config.cache.max_num_blocks) == (16, 1024)
    assert config.scheduler.max_num_seqs == 32
    assert config.scheduler.max_num_batched_tokens == 4096
    assert config.model.max_model_len == 2048
    assert config.admission.admission_ceiling == 0.9
    assert config.admission.background_ceiling == 0.8
    assert config.executor.max_retry_attempts == 2
    assert (config.server.host, config.server.port) == ("127.0.0.1", 3000)
    assert config.model.model_aliases == "hetero-infer"
    assert config.model.source == EngineConfig().model.source
    assert mapped == Mapped(mapped.values, has_model=True)


def test_the_whole_file_says_the_same_but_for_its_tokenizer(read: Reader) -> None:
    config, mapped = read(file=WHOLE_FILE)
    default, _ = read()
    assert (config.cache, config.scheduler, config.admission, config.server) == (
        default.cache,
        default.scheduler,
        default.admission,
        default.server,
    )
    assert config.executor.simulate is not None
    assert config.model.served_model_name == "hetero-infer"
    assert not mapped.has_model
    assert mapped.note is not None


@pytest.mark.parametrize(
    ("flags", "cap"),
    [
        (["--max-batch-size", "8"], 8),
        (["--max-num-seqs", "4"], 4),
        (["--max-batch-size", "300"], 256),
        (["--max-batch-size", "300", "--max-num-seqs", "400"], 300),
    ],
)
def test_as_many_run_as_the_smaller_of_the_two_says(
    read: Reader, flags: list[str], cap: int
) -> None:
    assert read(*flags)[0].scheduler.max_num_seqs == cap


def test_every_flag_wins_over_the_file(read: Reader) -> None:
    flags = {
        "--block-size": "32",
        "--max-num-blocks": "99",
        "--max-batch-size": "5",
        "--max-num-seqs": "7",
        "--max-model-len": "777",
        "--max-total-tokens": "888",
        "--memory-threshold": "0.5",
        "--max-retry-attempts": "0",
        "--port": "4000",
    }
    config, _ = read(*(word for pair in flags.items() for word in pair), file=WHOLE_FILE)
    assert (config.cache.block_size, config.cache.max_num_blocks) == (32, 99)
    assert config.scheduler.max_num_seqs == 5
    assert (config.model.max_model_len, config.scheduler.max_num_batched_tokens) == (777, 888)
    assert (config.admission.admission_ceiling, config.admission.background_ceiling) == (0.5, 0.5)
    assert (config.executor.max_retry_attempts, config.server.port) == (0, 4000)


def test_variables_and_settings_of_quires_own_work_as_well(read: Reader) -> None:
    env = {"QUIRE_PORT": "0", "QUIRE_DRAIN_SECONDS": "7"}
    config, _ = read("--drain-seconds", "9", file={"serving": {"port": 81}}, env=env)
    assert (config.server.port, config.server.drain_seconds) == (0, 9.0)


@pytest.mark.parametrize("flags", [["model.gguf"], ["--source", "model.gguf"]])
def test_a_named_model_answers_with_its_own_tokenizer(read: Reader, flags: list[str]) -> None:
    config, mapped = read(*flags, file=WHOLE_FILE)
    assert (config.model.source, config.executor.simulate) == ("model.gguf", None)
    assert config.model.model_aliases == "hetero-infer"
    assert mapped.has_model


def test_a_tokenizer_in_a_models_folder_names_that_model(read: Reader, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = _tokenizer(folder / "tokenizer.json")
    file = {"tokenizer": {"kind": "huggingface", "path": str(path)}}
    config, mapped = read(file=file)
    assert (config.model.tokenizer, mapped.has_model) == (str(path), False)
    assert config.executor.simulate is not None
    assert "lies beside no weights" in (mapped.note or "")
    (folder / "model.safetensors").write_text("")
    config, mapped = read(file=file)
    assert (config.model.source, config.model.tokenizer) == (str(folder), None)
    assert mapped == Mapped(mapped.values, has_model=True)


def test_a_command_keeps_its_words(read: Reader) -> None:
    words = ["/bin/sh", "-c", "printf 'bridge:%s' \"$HETERO_PROMPT\""]
    backend = {"kind": "command_bridge", "command": {"program": words[0], "args": words[1:]}}
    config, mapped = read(file={"serving": {"backend": backend, "model_name": "mine"}})
    assert shlex.split(config.executor.command or "") == words
    assert config.model.served_model_name == "mine"
    assert not mapped.has_model


def test_the_page_of_the_mapping_has_every_parameter_and_its_default() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/seeds.md").read_text()
    sections = ((Limits, ""), (TokenizerChoice, "tokenizer."), (Serving, "serving."))
    for owner, prefix in (*sections, (BackendChoice, "serving.backend.")):
        for name, setting in plain_settings(owner).items():
            assert f"| `{prefix}{name}` | {setting.default_text or 'null'} |" in page


BACKEND = {"kind": "command_bridge", "command": {"program": "cat"}}


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ({"blok_size": 16}, 'unknown key "blok_size"; did you mean block_size?'),
        ({"servin": {}}, 'unknown key "servin"; did you mean serving?'),
        ({"zzz": 1}, 'unknown key "zzz"; there are block_size, max_num_blocks'),
        ({"tokenizer": {"knd": 1}}, 'unknown key "tokenizer.knd"; did you mean kind?'),
        ({"serving": {"prt": 1}}, 'unknown key "serving.prt"; did you mean port?'),
        ({"serving": {"backend": {"cmd": 1}}}, 'unknown key "serving.backend.cmd"'),
        (
            {"serving": {"backend": {**BACKEND, "command": {"program": "x", "arg": []}}}},
            'unknown key "serving.backend.command.arg"; did you mean args?',
        ),
        ({"block_size": "16"}, 'block_size is "16", but accepts one of 16, 32, 64'),
        ({"memory_threshold": 1.5}, "memory_threshold is 1.5, but accepts a number, greater than"),
        ({"max_retry_attempts": -1}, "max_retry_attempts is -1, but accepts a whole number"),
        ({"serving": {"port": 70000}}, "serving.port is 70000, but accepts"),
        ({"tokenizer": "simple"}, 'tokenizer is "simple", but accepts an object'),
        ({"tokenizer": {"kind": "own"}}, "but accepts one of simple, huggingface"),
        ({"tokenizer": {"kind": "huggingface"}}, "tokenizer.path is not set"),
        ({"tokenizer": {"kind": "huggingface", "path": "/none"}}, "there is no file /none"),
        ({"tokenizer": {"path": "x"}}, "tokenizer.path is only for the kind huggingface"),
        ({"serving": {"backend": {"kind": "command_bridge"}}}, "command is not set"),
        ({"serving": {"backend": {"command": {"program": "x"}}}}, "only for the kind command_br"),
        ({"serving": {"backend": {**BACKEND, "command": {}}}}, "command.program is not set"),
        (
            {"serving": {"backend": {**BACKEND, "command": {"program": "x", "args": "y"}}}},
            'args is "y", but accepts a list of texts',
        ),
        (
            {"serving": {"backend": {**BACKEND, "command": {"program": "x", "args": ["\0"]}}}},
            "holds a NUL character",
        ),
        (
            {"tokenizer": {"kind": "huggingface", "path": "x"}, "serving": {"backend": BACKEND}},
            "a command_bridge is given text; use simple",
        ),
        ({"max_total_tokens": 8}, "max_total_tokens (8) is less than the 32 sequences"),
        ({"cache": {}}, 'has "cache", a section of quire\'s own settings: start it with quire ser'),
        ([], "is not a JSON object"),
        ("{", "is not valid JSON"),
    ],
)
def test_what_the_file_cannot_say_is_an_error_that_helps(
    read: Reader, file: object, message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        read(file=file)


def test_a_file_that_is_not_there(read: Reader) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the configuration file /none: No such"):
        read("--config", "/none")


def _tokenizer(path: Path) -> Path:
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)}
    model = tokenizers.models.BPE(vocab=vocabulary, merges=[], byte_fallback=True)
    tokenizers.Tokenizer(model).save(str(path))
    return path
