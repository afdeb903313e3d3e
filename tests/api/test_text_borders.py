"""Any text through a real server, streamed and whole, with a stop string at every border.

A command stands in for the model: it answers with its prompt, a token for each byte, so that most
tokens of these texts are parts of characters.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.servers import RunningServer

TEXTS = {
    "cjk": "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0",
    "emoji": "a\U0001f600b\U0001f468\u200d\U0001f469\u200d\U0001f467!",
    "accents": "Gr\u00f6\u00dfe e\u0301 na\u00efve",
    "repeats": "aabaabaaab",
}


@pytest.fixture(scope="module")
def echo_server() -> Iterator[RunningServer]:
    with RunningServer("--command", "sh -c 'printf %s \"$HETERO_PROMPT\"'") as running:
        yield running


def answer_whole(server: RunningServer, body: dict[str, Any]) -> tuple[str, str, Any, int]:
    answer = server.post("/v1/completions", body).json()
    (choice,) = answer["choices"]
    num_tokens = answer["usage"]["completion_tokens"]
    return choice["text"], choice["finish_reason"], choice["stop_reason"], num_tokens


def answer_streamed(server: RunningServer, body: dict[str, Any]) -> tuple[str, str, Any, int]:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    *events, done, _ = server.post("/v1/completions", body | options).text.split("\n\n")
    assert done == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert all("\ufffd" not in choice["text"] for choice in choices)
    text, last = "".join(choice["text"] for choice in choices), choices[-1]
    num_tokens = chunks[-1]["usage"]["completion_tokens"]
    return text, last["finish_reason"], last["stop_reason"], num_tokens


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_stop_string_at_every_border(echo_server: RunningServer, name: str, length: int) -> None:
    text = TEXTS[name]
    for start in range(len(text) - length + 1):
        stop = text[start : start + length]
        end = text.index(stop)
        includes = start % 2 == 1
        body = {
            "model": "command", "prompt": text, "max_tokens": 500,
            "stop": [stop, "unheard-of"], "include_stop_str_in_output": includes,
        }  # fmt: skip
        shown = text[: end + length if includes else end]
        expected = (shown, "stop", stop, len(text[: end + length].encode()))
        assert answer_whole(echo_server, body) == expected
        assert answer_streamed(echo_server, body) == expected


@pytest.mark.parametrize("name", TEXTS)
def test_without_a_stop_all_of_it_comes(echo_server: RunningServer, name: str) -> None:
    text = TEXTS[name]
    body = {"model": "command", "prompt": text, "max_tokens": 500, "stop": text + "!"}
    expected = (text, "stop", None, len(text.encode()))
    assert answer_whole(echo_server, body) == answer_streamed(echo_server, body) == expected


def test_several_answers_of_a_command(echo_server: RunningServer) -> None:
    body = {"model": "command", "prompt": ["one", "two"], "n": 2, "max_tokens": 50}
    answer = echo_server.post("/v1/completions", body).json()
    assert [choice["text"] for choice in answer["choices"]] == ["one", "one", "two", "two"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("logprobs", 1), ("min_p", 0.5), ("logit_bias", {"5": 1}), ("bad_words", ["a"]),
     ("presence_penalty", 1), ("top_k", 5), ("min_tokens", 1), ("stop_token_ids", [5])],
)  # fmt: skip
def test_what_a_command_cannot_heed_is_refused(
    echo_server: RunningServer, name: str, value: Any
) -> None:
    body = {"model": "command", "prompt": "a", "max_tokens": 5, name: value}
    response = echo_server.post("/v1/completions", body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == name
