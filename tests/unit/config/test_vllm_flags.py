"""Command lines written for vLLM."""

from pathlib import Path

import pytest

from quire_engine.config.engine import EngineConfig
from quire_engine.config.fields import by_name
from quire_engine.config.flags import FlagParser, add_setting_flags, serve_config_from
from quire_engine.config.vllm_flags import DONE_ANYWAY, SYNONYMS, add_vllm_flags
from quire_engine.errors import ConfigError

SAME_NAME = {
    "--max-model-len": ("8192", ("model", "max_model_len"), 8192),
    "--gpu-memory-utilization": ("0.85", ("cache", "gpu_memory_utilization"), 0.85),
    "--max-num-seqs": ("64", ("scheduler", "max_num_seqs"), 64),
    "--max-num-batched-tokens": ("4096", ("scheduler", "max_num_batched_tokens"), 4096),
    "--served-model-name": ("chat", ("model", "served_model_name"), "chat"),
    "--dtype": ("bfloat16", ("model", "dtype"), "bfloat16"),
    "--kv-cache-dtype": ("auto", ("cache", "kv_cache_dtype"), "auto"),
    "--api-key": ("sk-1", ("access", "api_key"), "sk-1"),
    "--host": ("0.0.0.0", ("server", "host"), "0.0.0.0"),
    "--port": ("9000", ("server", "port"), 9000),
    "--seed": ("42", ("executor", "seed"), 42),
    "--block-size": ("32", ("cache", "block_size"), 32),
    "--tokenizer": ("t.json", ("model", "tokenizer"), "t.json"),
}
OTHER_NAME = {
    "--model": ("/m.gguf", ("model", "source"), "/m.gguf"),
    "--num-gpu-blocks-override": ("100", ("cache", "max_num_blocks"), 100),
    "--api-server-count": ("4", ("server", "api_workers"), 4),
    "--shutdown-timeout": ("30", ("server", "drain_seconds"), 30.0),
    "--otlp-traces-endpoint": ("http://c:4318", ("observability", "otlp_endpoint"), None),
    "--uvicorn-log-level": ("critical", ("observability", "log_level"), "error"),
}


def _parse(*argv: str, **environment: str) -> tuple[EngineConfig, list[str]]:
    parser = FlagParser(prog="quire serve", description="")
    add_setting_flags(parser)
    add_vllm_flags(parser)
    return serve_config_from(parser.parse_known(argv), environment)


def _config(*argv: str) -> EngineConfig:
    return _parse(*argv)[0]


@pytest.mark.parametrize("flag", [*SAME_NAME, *OTHER_NAME])
def test_a_flag_of_vllm_sets_what_it_says(flag: str) -> None:
    text, (section, name), expected = (SAME_NAME | OTHER_NAME)[flag]
    wanted = text if expected is None else expected
    underscored = "--" + flag[2:].replace("-", "_")
    for argv in ([flag, text], [f"{flag}={text}"], [underscored, text]):
        config = _config(*argv)
        assert getattr(getattr(config, section), name) == wanted, argv


def test_a_typical_command_line_works_as_it_is() -> None:
    config, idle = _parse(
        *("Qwen/Qwen3-8B", "--served-model-name", "qwen3", "qwen3-8b", "--host", "0.0.0.0"),
        *("--port", "8000", "--dtype", "half", "--max-model-len", "32k", "--seed", "0"),
        *("--tensor-parallel-size", "1", "--gpu-memory-utilization", "0.92"),
        *("--max-num-seqs", "256", "--max_num_batched_tokens=8192", "--enable-prefix-caching"),
        *("--kv-cache-dtype", "auto", "--block-size", "16", "--trust-remote-code"),
        *("--api-key", "sk-1", "--disable-log-requests", "--enable-chunked-prefill", "-pp", "1"),
    )

    assert config.model.source == "hf://Qwen/Qwen3-8B"
    assert config.model.served_model_name == "qwen3,qwen3-8b"
    assert config.model.dtype == "float16"
    assert config.model.max_model_len == 32_000
    assert not config.observability.log_requests
    assert idle == [
        "--tensor-parallel-size",
        "--pipeline-parallel-size",
        "--enable-chunked-prefill",
        "--trust-remote-code",
    ]


def test_every_synonym_stands_for_a_setting() -> None:
    for one in SYNONYMS:
        assert one.is_switch == by_name()[one.setting].is_switch


def test_switches_turn_their_setting_on_and_off() -> None:
    assert _config("--enable-log-requests").observability.log_requests
    assert not _config("--no-enable-log-requests").observability.log_requests
    assert not _config("--disable-log-requests").observability.log_requests
    assert _config("--no-disable-log-requests").observability.log_requests


def test_what_is_done_anyway_is_taken_and_reported() -> None:
    for one in DONE_ANYWAY:
        argv = [one.short or one.flag] + ([] if one.is_switch else [(one.values or ("4",))[0]])
        assert _parse(*argv) == (EngineConfig(), [one.flag])


def test_short_flags_of_vllm_are_taken_too() -> None:
    assert _config("-asc", "2").server.api_workers == 2


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        (["--api-workers", "0"], ["--api-workers", "at least 1 and at most 64"]),
        (["--api-server-count", "1000"], ["--api-workers", "at least 1 and at most 64"]),
        (["--command", "cat", "--api-workers", "2"], ["api_workers is 2", "leave it at 1"]),
        (["-tp", "2"], ["--tensor-parallel-size 2 is not possible", "start one engine for each"]),
        (["--data-parallel-size=4"], ["--data-parallel-size 4 is not possible"]),
        (["--quantization", "awq"], ["--quantization awq is not possible"]),
        (["--no-enable-chunked-prefill"], ["cannot be turned off", "in chunks"]),
        (["--hf-token", "hf_secret"], ["can be read by others", "--hf-token-file"]),
        (["--model", "a", "--source", "b"], ["--model and --source are the same"]),
        (["a", "--model", "b"], ["--model and --source are the same"]),
        (["--kv-cache-dtype", "fp8"], ["--kv-cache-dtype", "auto"]),
        (["--kv-cache-dtype", "float16"], ["kv_cache_dtype is float16, but dtype is auto"]),
        (["--revision", "main"], ["--revision needs a MODEL on the hub"]),
        (["--served-model-name", "a", "/m.gguf"], ["put MODEL before it"]),
        (["--chat-templte", "x"], ["unknown flag --chat-templte; did you mean --chat-template?"]),
        (["--lora-modules", "a=b", "c=d"], ["adapters cannot be served"]),
        (["--limit-mm-per-prompt", '{"image": 1}'], ["prompts are text"]),
        (["--guided-decoding-backend", "outlines"], ["not possible", "xgrammar"]),
    ],
)
def test_what_quire_does_not_do_is_refused_with_what_to_do(
    argv: list[str], parts: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        _config(*argv)
    for part in parts:
        assert part in str(caught.value)
    assert "hf_secret" not in str(caught.value)


def test_a_repository_is_a_source_on_the_hub_unless_there_is_such_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    argv = ("org/name", "--revision", "refs/pr/1")
    assert _config(*argv).model.source == "hf://org/name@refs%2Fpr%2F1"

    (tmp_path / "org" / "name").mkdir(parents=True)
    assert _config("org/name").model.source == "org/name"
    with pytest.raises(ConfigError, match="is here"):
        _config(*argv)


def test_several_names_come_in_words_again_or_with_commas() -> None:
    for argv in (
        ["m", "--served-model-name", "a", "b"],
        ["m", "--served-model-name", "a", "--served-model-name", "b"],
        ["--served-model-name=a,b", "m"],
        ["--served-model-name", "a,b"],
    ):
        assert _config(*argv).model.served_model_name == "a,b"
