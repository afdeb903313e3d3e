"""A reasoning apart from its answer, streamed and whole, over real HTTP.

A command stands in for the model: it says what the last message says, a token for each byte, so
that tags are cut everywhere.
"""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.api.servers import RunningServer

REPEAT = "sh -c 'said=${HETERO_PROMPT##*user: }; printf %s \"${said%?assistant: }\"'"
THOUGHT, SAID = "Hm, 3 < 4 </thin k>, größer 😀", "It is 4. <think>no</think>"
SPOKEN = f"\n<think>{THOUGHT}</think>{SAID}"


@pytest.fixture(scope="module")
def repeating() -> Iterator[RunningServer]:
    flags = ("--reasoning-parser", "qwen3", "--trust-request-chat-template")
    with RunningServer("--command", REPEAT, *flags) as running:
        yield running


def body_of(text: str, **parameters: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": "command", "messages": messages, **parameters}


def ask_whole(server: RunningServer, text: str, **parameters: Any) -> dict[str, Any]:
    response = server.post("/v1/chat/completions", body_of(text, **parameters))
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def ask_streamed(server: RunningServer, text: str, **parameters: Any) -> list[dict[str, Any]]:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    response = server.post("/v1/chat/completions", body_of(text, **parameters, **options))
    *events, done, _ = response.text.split("\n\n")
    assert done == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events]


def join(chunks: list[dict[str, Any]], field: str, index: int = 0) -> str:
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    deltas = [choice["delta"] for choice in choices if choice["index"] == index]
    return "".join(delta.get(field) or "" for delta in deltas)


@pytest.mark.parametrize(
    ("text", "thought", "said"),
    [
        (SPOKEN, THOUGHT, SAID),
        (f"<think>{THOUGHT}", THOUGHT, None),
        ("<think></think>", None, ""),
        (SAID, None, SAID),
        ("<thin", None, "<thin"),
    ],
)
def test_whole_and_streamed_are_split_alike(
    repeating: RunningServer, text: str, thought: str | None, said: str | None
) -> None:
    whole, chunks = ask_whole(repeating, text, n=2), ask_streamed(repeating, text, n=2)

    for index in (0, 1):
        message = whole["choices"][index]["message"]
        assert message["content"] == said
        assert message["reasoning"] == message["reasoning_content"] == thought
        assert join(chunks, "content", index) == (said or "")
        for name in ("reasoning", "reasoning_content"):
            assert join(chunks, name, index) == (thought or "")
    assert chunks[-1]["usage"] == whole["usage"]
    num_tokens = len(text.partition("</think>")[0].encode()) + 8 * ("</think>" in text)
    counted = whole["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert counted == (2 * num_tokens if text.lstrip().startswith("<think>") else 0)
    assert whole["usage"]["completion_tokens"] == 2 * len(text.encode())


def test_every_delta_has_text_and_the_reasoning_comes_first(repeating: RunningServer) -> None:
    first, *chunks, finish, _ = ask_streamed(repeating, SPOKEN)

    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert finish["choices"][0]["delta"] == {}
    assert finish["choices"][0]["finish_reason"] == "stop"
    kinds = [sorted(chunk["choices"][0]["delta"]) for chunk in chunks]
    assert all(kinds)
    is_said = ["content" in kind for kind in kinds]
    assert is_said == sorted(is_said)


def test_a_reasoning_that_nobody_wants_is_not_sent_but_counted(repeating: RunningServer) -> None:
    whole = ask_whole(repeating, SPOKEN, include_reasoning=False)
    chunks = ask_streamed(repeating, SPOKEN, include_reasoning=False)

    assert whole["choices"][0]["message"]["reasoning"] is None
    assert whole["choices"][0]["message"]["content"] == join(chunks, "content") == SAID
    assert join(chunks, "reasoning") == join(chunks, "reasoning_content") == ""
    usage = ask_whole(repeating, SPOKEN)["usage"]
    assert whole["usage"] == chunks[-1]["usage"] == usage


def test_a_stop_string_may_end_either(repeating: RunningServer) -> None:
    for stop, thought, said in (("3", "Hm, ", None), ("4.", THOUGHT, "It is ")):
        (choice,) = ask_whole(repeating, SPOKEN, stop=stop)["choices"]
        chunks = ask_streamed(repeating, SPOKEN, stop=stop)
        assert (choice["message"]["reasoning"], choice["message"]["content"]) == (thought, said)
        assert join(chunks, "reasoning") == thought
        assert join(chunks, "content") == (said or "")
        assert choice["stop_reason"] == chunks[-2]["choices"][0]["stop_reason"] == stop


def test_a_prompt_that_opens_or_closes_the_reasoning(repeating: RunningServer) -> None:
    """The template of the request ends as those of DeepSeek-R1 and Qwen3 do."""
    written = "user: {{ messages[0].content }}\nassistant: {{ end }}"
    for end, thought, said in (
        ("<think>\n", "a", "b"), ("<think>\n\n</think>\n\n", None, "a</think>b"),
    ):  # fmt: skip
        template = {"chat_template": written, "chat_template_kwargs": {"end": end}}
        message = ask_whole(repeating, "a</think>b", **template)["choices"][0]["message"]
        text = f"a</think>b\nassistant: {end}"
        expected = text if thought is None else text.partition("</think>")[2]
        assert message["reasoning"] == thought
        assert message["content"] == expected
        assert said in expected


def test_openais_client_sees_both(repeating: RunningServer) -> None:
    with openai.OpenAI(base_url=f"{repeating.url}/v1", api_key="none", max_retries=0) as client:
        answer: Any = client.chat.completions.create(**body_of(SPOKEN))
        stream: Any = client.chat.completions.create(**body_of(SPOKEN), stream=True)
        deltas = [chunk.choices[0].delta for chunk in stream]

    assert answer.choices[0].message.reasoning_content == THOUGHT
    assert answer.choices[0].message.content == SAID
    assert answer.usage.completion_tokens_details.reasoning_tokens > 0
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == THOUGHT
    assert "".join(delta.content or "" for delta in deltas) == SAID


def test_templates_of_clients_are_refused_without_the_flag(server: RunningServer) -> None:
    body = {"model": "llama3-8b", "messages": [{"role": "user", "content": "hi"}]}
    for path in ("/v1/chat/completions", "/tokenize"):
        response = server.post(path, {**body, "chat_template": "{{ messages }}"})
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "chat_template"


@pytest.mark.parametrize(
    ("template", "parameter"),
    [("{% if %}", "chat_template"), ("{{ raise_exception('no') }}", "messages")],
)
def test_a_clients_template_that_fails_is_its_own_fault(
    repeating: RunningServer, template: str, parameter: str
) -> None:
    body = body_of("hi", chat_template=template)
    response = repeating.post("/v1/chat/completions", body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == parameter


def test_an_open_message_is_gone_on_with(repeating: RunningServer) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "So far"}]
    wanted = {"continue_final_message": True, "add_generation_prompt": False}
    answer = repeating.post("/tokenize", {"messages": messages, **wanted}).json()

    assert bytes(answer["tokens"]).decode() == "user: hi\nassistant: So far"


def test_a_server_without_a_parser_leaves_tags_in_the_text(server: RunningServer) -> None:
    body = {"model": "llama3-8b", "messages": [{"role": "user", "content": "hi"}]}
    answer = server.post("/v1/chat/completions", {**body, "max_tokens": 4}).json()

    assert "reasoning" not in answer["choices"][0]["message"]
    assert "completion_tokens_details" not in answer["usage"]
