"""What can go wrong before the first request is told at once and in words."""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import httpx

from tests.api.servers import SIMULATED, RunningServer, start, wait_for_line

_LISTENING = re.compile(r"listening on (http://\S+),")


def refused_start(*flags: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    """Exit status and messages of a server that should not start."""
    process = start(*flags, env=env, stderr=subprocess.PIPE)
    _, messages = process.communicate(timeout=60)
    return process.returncode, messages


def test_a_busy_port_is_told_before_anything_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        status, messages = refused_start(*SIMULATED, "--port", str(port))

    assert status == 2
    assert f"port {port} on 127.0.0.1 is in use" in messages
    assert "--port" in messages
    assert "Traceback" not in messages


def test_a_cache_too_small_for_one_request_is_told_by_the_core() -> None:
    status, messages = refused_start(*SIMULATED, "--max-num-blocks", "4")

    assert status != 0
    assert "max_model_len" in messages
    assert "Traceback" not in messages


def test_an_unknown_gpu_is_told() -> None:
    status, messages = refused_start("--simulate", "abacus", "--model-shape", "llama3-8b")

    assert status != 0
    assert "abacus" in messages
    assert "Traceback" not in messages


def test_a_temporary_folder_with_too_long_a_path_is_told(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    status, messages = refused_start(*SIMULATED, env={"TMPDIR": str(deep)})

    assert status == 2
    assert "TMPDIR" in messages


def test_the_core_is_not_started_by_hand() -> None:
    core = subprocess.run(
        [sys.executable, "-m", "quire_engine.core"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert core.returncode == 1
    assert "started by the API server" in core.stderr


def test_probes_are_answered_while_the_model_loads(stalled_model: Path) -> None:
    process = start(str(stalled_model))
    try:
        url = wait_for_line(process, _LISTENING, [])[1]
        assert httpx.get(f"{url}/healthz", timeout=60).status_code == 200
        assert httpx.get(f"{url}/readyz", timeout=60).status_code == 503
        assert httpx.get(f"{url}/readyz", timeout=60).json() == {"status": "loading"}
        assert "<!doctype html>" in httpx.get(f"{url}/", timeout=60).text
        with httpx.stream("GET", f"{url}/state/live") as live:
            first = next(live.iter_text())
        assert '"status":"loading"' in first
        assert '"view":null' in first
        refused = httpx.post(f"{url}/v1/completions", json={}, timeout=60)
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "not_ready"
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_command_line_of_vllm_serves(tmp_path: Path) -> None:
    """`vllm serve` as people write it; a simulated engine stands for the GPU."""
    flags = (
        *(*SIMULATED, "--host", "127.0.0.1", "--dtype", "bfloat16", "--max-model-len", "8k"),
        *("--served-model-name", "chat", "chat-latest", "--tensor-parallel-size", "1"),
        *("--gpu-memory-utilization", "0.92", "--max_num_seqs=64", "--max-num-batched-tokens"),
        *("4096", "--kv-cache-dtype", "auto", "--enable-prefix-caching", "--seed", "1"),
        *("--trust-remote-code", "--block-size", "16", "--disable-log-requests", "--api-key", "k"),
        *("--log-format", "json"),
    )
    log = tmp_path / "log"
    with RunningServer(*flags, stderr=log) as server:
        for name in ("chat", "chat-latest"):
            body = {"model": name, "prompt": "Once", "max_tokens": 3}
            answer = server.post("/v1/completions", body, headers={"authorization": "Bearer k"})
            assert answer.status_code == 200
            assert answer.json()["model"] == name
        assert 'model_name="chat"' in server.get("/metrics").text
    told = json.loads(log.read_text().splitlines()[0])
    assert told["message"].endswith("see --help: --tensor-parallel-size, --trust-remote-code")
