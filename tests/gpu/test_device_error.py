"""An error of the device while it serves: requests end with an error, and another core is started.

The error is a real one, an index out of range in a kernel: it stays with the process until its end.
A module that Python imports at its start makes it, in the core's process, once a file is there.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.api.events import check_ends_once, parse_events
from tests.api.servers import RunningServer, wait_until
from tests.unit.models.builders import make_llama
from tests.unit.tokenizing.builders import CHATML, train_byte_level

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

TROUBLE = """
import os, sys, threading, time

def wait():
    trigger = os.environ["TROUBLE_FILE"]
    while not os.path.exists(trigger):
        time.sleep(0.02)
    os.unlink(trigger)  # the next core has no trouble
    import torch
    nowhere = torch.tensor([1 << 40], device="cuda")
    torch.zeros(1, device="cuda")[nowhere]

if "quire_engine.core" in sys.orig_argv:
    threading.Thread(target=wait, daemon=True).start()
"""
FLAGS = ("--device", "cuda", "--max-num-blocks", "5000", "--max-num-seqs", "16")
NUM_REQUESTS = 8


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama whose head size has kernels, with a tokenizer."""
    folder = tmp_path_factory.mktemp("llama")
    backend = train_byte_level("qwen2")
    sizes: dict[str, Any] = {
        "hidden_size": 256,
        "intermediate_size": 512,
        "max_position_embeddings": 8192,
    }
    make_llama(folder, vocab_size=backend.get_vocab_size(), eos_token_id=0, **sizes)
    backend.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<|end|>", "chat_template": CHATML}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture
def trouble(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """The file that makes trouble, and the environment of a server that looks for it."""
    (tmp_path / "sitecustomize.py").write_text(TROUBLE)
    trigger = tmp_path / "trouble"
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    return trigger, {"PYTHONPATH": path, "TROUBLE_FILE": str(trigger)}


@pytest.mark.parametrize("overlap", ["--overlap", "--no-overlap"])
def test_requests_end_with_an_error_and_another_core_serves(
    model: Path, trouble: tuple[Path, dict[str, str]], overlap: str
) -> None:
    trigger, environment = trouble
    flags = (*FLAGS, overlap, "--core-restart-backoff-seconds", "0.2")
    with RunningServer(str(model), *flags, env=environment) as server:
        name = server.get("/v1/models").json()["data"][0]["id"]
        body = {"model": name, "prompt": "the cat sat", "ignore_eos": True, "temperature": 0.0}
        expected = server.post("/v1/completions", body | {"max_tokens": 20}).json()["choices"]
        broken = server.core_pid()

        with ThreadPoolExecutor(NUM_REQUESTS) as threads:
            long = body | {"max_tokens": 8000}
            answers = [
                threads.submit(server.post, "/v1/completions", long | {"stream": number % 2 == 0})
                for number in range(NUM_REQUESTS)
            ]
            wait_until(lambda: server.state().sequences.running == NUM_REQUESTS)
            trigger.touch()
            wait_until(lambda: not server.is_ready())
            responses = [answer.result() for answer in answers]

        for number, response in enumerate(responses):
            if number % 2 == 0:
                assert check_ends_once(parse_events(response.text)) == "error"
            else:
                assert response.status_code == 503
                assert response.json()["error"]["code"] == "engine_restarting"
        wait_until(server.is_ready)
        assert server.core_pid() != broken
        again = server.post("/v1/completions", body | {"max_tokens": 20}).json()["choices"]
        assert again == expected
        assert server.wait_until_idle().num_core_restarts == 1
