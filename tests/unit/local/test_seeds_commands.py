"""Every command of the seed's README, run as it is written there with the name changed.

Variables stand for what a test cannot leave as it is: the port, and the model where a simulated
one suffices.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from quire_local import cli
from tests.unit.local.test_seeds import WHOLE_FILE, _tokenizer

SIMULATED = {
    "QUIRE_SIMULATE": "h100",
    "QUIRE_MODEL_SHAPE": "llama3-8b",
    "QUIRE_SIMULATED_STEP_SECONDS": "0",
}
FREE_PORT = {"QUIRE_PORT": "0", "QUIRE_DRAIN_GRACE_SECONDS": "0"}
BRIDGE = {
    "serving": {
        "backend": {
            "kind": "command_bridge",
            "command": {
                "program": "/bin/sh",
                "args": ["-c", "printf 'bridge:%s' \"$HETERO_PROMPT\""],
            },
        }
    }
}


def run(command: str, folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _words(command),
        cwd=folder,
        env=_environment(variables),
        capture_output=True,
        text=True,
        timeout=240,
    )


@contextmanager
def serving(command: str, folder: Path, variables: dict[str, str]) -> Iterator[str]:
    """The server of a command, once it is ready."""
    with subprocess.Popen(
        _words(command), cwd=folder, env=_environment(variables), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            ready = next(line for line in process.stdout if "quire: ready" in line)
            yield ready.split(" on ")[1].removesuffix("/v1\n")
        finally:
            process.terminate()
            assert process.wait(timeout=60) == 0


def _words(command: str) -> list[str]:
    name, *words = shlex.split(command)
    assert name == "quire"
    return [sys.executable, "-m", "quire_local.cli", *words]


def _environment(variables: dict[str, str]) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("QUIRE_")}
    kept |= {name: text for name, text in os.environ.items() if name == "QUIRE_CACHE"}
    return {**kept, "PYTHONUNBUFFERED": "1", **variables}


@pytest.mark.parametrize(
    "command",
    [
        'quire --input "Hello, world!" --max-tokens 50',
        'quire --input "Explain quantum computing" --max-tokens 100 --temperature 0.8 --top-p 0.95',
    ],
)
def test_one_answer(tmp_path: Path, command: str) -> None:
    done = run(command, tmp_path, SIMULATED)
    assert done.returncode == 0, done.stderr
    max_tokens = int(command.split("--max-tokens ")[1].split()[0])
    assert len(done.stdout.removesuffix("\n")) == max_tokens


def test_one_answer_of_the_real_model(tmp_path: Path) -> None:
    done = run('quire --input "Hello, world!" --max-tokens 50', tmp_path, {})
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "quire:" not in done.stdout
    assert "ready: SmolLM2-135M" in done.stderr


def test_serving_answers_what_the_documents_ask(tmp_path: Path) -> None:
    with serving("quire --serve", tmp_path, {**SIMULATED, **FREE_PORT}) as url:
        for path in ("/healthz", "/readyz", "/metrics"):
            assert httpx.get(url + path).status_code == 200
        names = [model["id"] for model in httpx.get(f"{url}/v1/models").json()["data"]]
        assert names == ["llama3-8b", "hetero-infer"]
        answer = _post(
            f"{url}/v1/completions", '{"model":"hetero-infer","prompt":"hello","max_tokens":8}'
        )
        assert (answer["model"], answer["usage"]["completion_tokens"]) == ("hetero-infer", 8)
        answer = _post(
            f"{url}/v1/chat/completions",
            '{"model":"hetero-infer","messages":[{"role":"user","content":"say hi"}],'
            '"max_tokens":8}',
        )
        assert len(answer["choices"][0]["message"]["content"]) == 8
        assert httpx.get(f"{url}/v1/models/hetero-infer").json()["id"] == "hetero-infer"


@pytest.mark.parametrize(
    "command", ["quire --config config.json", "quire --serve --config config.json"]
)
def test_serving_by_the_documents_file(tmp_path: Path, command: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(WHOLE_FILE))
    with serving(command, tmp_path, FREE_PORT) as url:
        state = httpx.get(f"{url}/state").json()
        assert (state["blocks"]["total"], state["tokens_per_block"]) == (1024, 16)
        assert (state["sequences"]["slots"], state["max_model_len"]) == (32, 2048)
        body = '{"model":"hetero-infer","prompt":"hello","max_tokens":8}'
        assert _post(f"{url}/v1/completions", body)["usage"]["prompt_tokens"] == 5


def test_a_tokenizer_file_by_itself(tmp_path: Path) -> None:
    _tokenizer(tmp_path / "tokenizer.json")
    file = {"tokenizer": {"kind": "huggingface", "path": "tokenizer.json"}}
    (tmp_path / "config.json").write_text(json.dumps(file))
    done = run('quire --config config.json --input "Hello" --max-tokens 8', tmp_path, {})
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "lies beside no weights" in done.stderr


def test_the_command_bridge_of_the_documents(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(BRIDGE))
    with serving("quire --serve --config config.json", tmp_path, FREE_PORT) as url:
        body = '{"model":"hetero-infer","prompt":"hello","max_tokens":8}'
        choice = _post(f"{url}/v1/completions", body)["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == ("bridge:hello", "stop")
        events = httpx.post(f"{url}/v1/completions", json={**json.loads(body), "stream": True}).text
        assert "bridge:hello" in events
        assert events.endswith("data: [DONE]\n\n")
    done = run('quire --config config.json --input "Hello, world!"', tmp_path, {})
    assert (done.returncode, done.stdout) == (0, "bridge:Hello, world!\n")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--serve", "--input", "x"], "--input and --serve exclude each other"),
        (["--max-tokens", "5"], "there is nothing to do: give --input TEXT or --serve"),
        (["--serve", "--temperature", "0.5"], "--temperature is for --input"),
        (["--memory-treshold", "0.5"], "did you mean --memory-threshold?"),
        (["--serve", "--memory-threshold", "2"], '--memory-threshold is "2", but accepts'),
        (["--serve", "--max-total-tokens", "3"], "max_total_tokens (3) is less than the 32"),
        (["--input", "x", "--top-p", "0"], '"0" is no number above 0 and up to 1'),
        (["--serve", "a.gguf", "--source", "b.gguf"], "the model is given twice"),
    ],
)
def test_wrong_flags_are_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str], argv: list[str], message: str
) -> None:
    assert cli.main(argv) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("quire: error: ")
    assert message in line


def test_help_names_the_seeds_flags_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--serve", "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert all(flag in shown for flag in ("--max-batch-size", "--memory-threshold", "--top-p"))
    assert "--max-total-tokens 4096" in " ".join(shown.split())


def _post(url: str, body: str) -> dict[str, Any]:
    response = httpx.post(
        url, content=body, headers={"content-type": "application/json"}, timeout=60
    )
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer
