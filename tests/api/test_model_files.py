"""A model from a hub, whole: its files, its defaults and its end tokens reach a client; faults are
told before anything is served."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from tests.api.servers import RunningServer, start
from tests.unit.models.families import FAMILIES, make_family
from tests.unit.sources.hub_server import COMMIT, HubState
from tests.unit.sources.web_server import serve_web
from tests.unit.tokenizing.builders import CHATML, train_byte_level

BACKEND = train_byte_level("qwen2")
PROMPT = {"prompt": "the cat sat", "max_tokens": 24}
FLAGS = ("--device", "cpu", "--max-num-blocks", "40", "--num-threads", "1")


def make_folder(folder: Path, **generation: Any) -> Path:
    """A tiny random Qwen2 with a tokenizer of its own."""
    make_family(folder, FAMILIES["qwen2"], vocab_size=BACKEND.get_vocab_size(), eos_token_id=0)
    BACKEND.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<|end|>", "chat_template": CHATML}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[HubState, dict[str, str]]]:
    """A hub, and the environment of a server that asks it."""
    state = HubState()
    with serve_web(state) as url, serve_web(state.cdn) as cdn_url:
        state.cdn_url = cdn_url
        yield state, {"HF_ENDPOINT": url, "QUIRE_CACHE": str(tmp_path / "cache")}


def publish(hub: HubState, folder: Path) -> None:
    hub.files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def complete(server: RunningServer, **parameters: Any) -> Any:
    model = server.get("/v1/models").json()["data"][0]["id"]
    answer = server.post("/v1/completions", {"model": model, **PROMPT, **parameters})
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


def test_the_models_defaults_hold_where_a_request_says_nothing(
    hub: tuple[HubState, dict[str, str]], tmp_path: Path
) -> None:
    state, environment = hub
    publish(state, make_folder(tmp_path / "model", temperature=0.0))
    with RunningServer("hf://Org/Repo@main", *FLAGS, env=environment) as server:
        assert server.state().model_revision == COMMIT
        greedy = complete(server, temperature=0.0)["text"]
        assert [complete(server)["text"] for _ in range(3)] == [greedy] * 3
        assert complete(server, temperature=2.0, seed=1)["text"] != greedy
    plain = ("--generation-config", "none")
    with RunningServer("hf://Org/Repo@main", *FLAGS, *plain, env=environment) as server:
        # the chance that 24 tokens of a random model are the likeliest ones is nil
        assert complete(server)["text"] != greedy


def test_every_end_token_of_the_files_ends_an_answer(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    with RunningServer(str(folder), *FLAGS) as server:
        assert server.state().model_revision is None
        text = complete(server, temperature=0.0)["text"]
    # the seventh token of the greedy answer becomes one of several that end it
    output = greedy_tokens(folder, 24)
    end = output[6]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, end, 1]}))
    with RunningServer(str(folder), *FLAGS) as server:
        ended = complete(server, temperature=0.0)
        assert ended["finish_reason"] == "stop"
        first = output.index(end)
        assert ended["text"] == BACKEND.decode(output[:first])
        assert text.startswith(ended["text"])
        assert complete(server, temperature=0.0, ignore_eos=True)["text"] == text


@pytest.mark.parametrize("is_file", [True, False])
def test_a_chat_template_of_the_users_is_what_conversations_are_written_by(
    tmp_path: Path, is_file: bool
) -> None:
    folder = make_folder(tmp_path / "model")
    given = template = (
        "{% for message in messages %}{{ message.content }}{{ eos_token }}{% endfor %}"
    )
    if is_file:
        given = str(tmp_path / "mine.jinja")
        Path(given).write_text(template)
    with RunningServer(str(folder), *FLAGS, "--chat-template", given) as server:
        messages = [{"role": "user", "content": "the cat sat"}]
        answer = server.post("/tokenize", {"model": "model", "messages": messages})
        assert answer.json()["tokens"] == BACKEND.encode("the cat sat<|end|>").ids


def greedy_tokens(folder: Path, count: int) -> list[int]:
    """What transformers generates."""
    import torch
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokens = BACKEND.encode(str(PROMPT["prompt"])).ids
    for _ in range(count):
        with torch.inference_mode():
            tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[-count:]


def refuse(folder: Path) -> str:
    """Messages of a server that must not start."""
    process = start(str(folder), *FLAGS, stderr=subprocess.PIPE)
    _, messages = process.communicate(timeout=120)
    assert process.returncode not in (0, None)
    assert "Traceback" not in messages
    return messages


def spoil_weights(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.self_attn.q_proj.bias"][3] = float("nan")
    save_file(tensors, folder / "model.safetensors")


def change_json(name: str, **changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        values = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(values | changes))

    return change


def cut(name: str) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / name, (folder / name).stat().st_size - 1)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (spoil_weights, "layers.1.self_attn.q_proj.bias has values that are not finite"),
        (cut("tokenizer.json"), "tokenizer.json cannot be read"),
        (change_json("generation_config.json", top_p=7), "top_p is 7, but must be a number above"),
        (change_json("tokenizer_config.json", chat_template="{% if"), "chat template is not valid"),
    ],
)
def test_a_fault_in_a_file_is_told_in_one_line(
    tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    folder = make_folder(tmp_path)
    damage(folder)
    messages = refuse(folder)
    assert message in messages
