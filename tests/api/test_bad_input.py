"""What is wrong with a request is said in OpenAI's words, and hurts nobody else."""

import asyncio
import json
import socket
from typing import Any

import httpx
import pytest

from tests.api.servers import MODEL, SIMULATED, RunningServer, wait_until, wait_until_async

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "hi"}]


def chat(**changes: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": MESSAGES, "max_tokens": 4} | changes


def completion(**changes: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": "hi", "max_tokens": 4} | changes


def check_error(response: httpx.Response, status: int, param: str | None = None) -> dict[str, Any]:
    """The response is an error with OpenAI's body, and tells nothing of the machine."""
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert param is None or error["param"] == param
    for secret in ("Traceback", "/home", "/tmp", ".py", "0x", "quire_engine"):
        assert secret not in response.text
    return error


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"model": 3}, "model"),
        ({"messages": "hi"}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "wizard", "content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"content": "hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content[0].type",
        ),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": "4"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 8193}, "max_tokens"),
        ({"max_tokens": 2**70}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"seed": 1.5}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", ""]}, "stop[1]"),
        ({"stop": ["a"] * 65}, "stop"),
        ({"stop": 3}, "stop"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
        ({"stop_token_ids": [128_256]}, "stop_token_ids"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": []}, "stream_options"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": 1.5}, "n"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"logprobs": 3}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"frequency_penalty": 3}, "frequency_penalty"),
        ({"frequency_penalty": "much"}, "frequency_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"repetition_penalty": -1}, "repetition_penalty"),
        ({"repetition_penalty": 1e300}, "repetition_penalty"),
        ({"min_p": -0.1}, "min_p"),
        ({"min_p": 1.1}, "min_p"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
        ({"min_tokens": 2**63 - 1}, "min_tokens"),
        ({"logit_bias": {"5": 101}}, "logit_bias[...]"),
        ({"logit_bias": {"5": None}}, "logit_bias[...]"),
        ({"logit_bias": {"five": 1}}, "logit_bias"),
        ({"logit_bias": {"-5": 1}}, "logit_bias"),
        ({"logit_bias": {"\u0665": 1}}, "logit_bias"),
        ({"logit_bias": {"128256": 1}}, "logit_bias"),
        ({"logit_bias": {str(token): 1 for token in range(1025)}}, "logit_bias"),
        ({"logit_bias": [5]}, "logit_bias"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"allowed_token_ids": [128_256]}, "allowed_token_ids"),
        ({"allowed_token_ids": [-1]}, "allowed_token_ids[0]"),
        ({"bad_words": [""]}, "bad_words[0]"),
        ({"bad_words": ["x" * 300]}, "bad_words"),
        ({"bad_words": ["x"] * 257}, "bad_words"),
        ({"include_stop_str_in_output": 1}, "include_stop_str_in_output"),
        ({"skip_special_tokens": "no"}, "skip_special_tokens"),
    ],
)
def test_bad_chat_parameters_are_named(
    server: RunningServer, changes: dict[str, Any], param: str
) -> None:
    error = check_error(server.post(CHAT, chat(**changes)), 400, param)

    assert error["type"] == "invalid_request_error"
    assert param.partition("[")[0].partition(".")[0] in error["message"]


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": ["one", ""]}, "prompt"),
        ({"prompt": ["one", []]}, "prompt"),
        ({"prompt": ["a"] * 2049}, "prompt"),
        ({"prompt": ["a"] * 17, "n": 128}, "prompt"),
        ({"prompt": ["a", [128_256]]}, "prompt"),
        ({"prompt": [[1] * 8192, [1]]}, "prompt"),
        ({"prompt": ["one", 2]}, "prompt"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"prompt": [1.5]}, "prompt[0]"),
        ({"prompt": [128_256]}, "prompt"),
        ({"prompt": {"text": "hi"}}, "prompt"),
        ({"prompt": "x" * 8192}, "prompt"),
        ({"prompt": [1] * 8192}, "prompt"),
        ({"echo": "yes"}, "echo"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1, "echo": True}, "max_tokens"),
        ({"best_of": 0}, "best_of"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"suffix": "!"}, "suffix"),
    ],
)
def test_bad_completion_parameters_are_named(
    server: RunningServer, changes: dict[str, Any], param: str
) -> None:
    check_error(server.post(COMPLETIONS, completion(**changes)), 400, param)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
@pytest.mark.parametrize(
    "name", ["temperature", "top_p", "min_p", "presence_penalty", "repetition_penalty", "bias"]
)
def test_what_is_no_finite_number_is_refused(server: RunningServer, name: str, number: str) -> None:
    field = f'"logit_bias": {{"5": {number}}}' if name == "bias" else f'"{name}": {number}'
    body = f'{{"model": "{MODEL}", "prompt": "hi", "max_tokens": 2, {field}}}'
    response = httpx.post(server.url + COMPLETIONS, content=body, timeout=60)
    check_error(response, 400)


@pytest.mark.parametrize("missing", ["model", "messages"])
def test_a_missing_field_is_named(server: RunningServer, missing: str) -> None:
    body = chat()
    del body[missing]

    check_error(server.post(CHAT, body), 400, missing)


def test_a_prompt_that_is_too_long_is_told_the_numbers(server: RunningServer) -> None:
    error = check_error(server.post(COMPLETIONS, completion(prompt="x" * 9000)), 400, "prompt")

    assert "9000" in error["message"]
    assert "8192" in error["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"null",
        b"\xff\xfe",
        b'{"model": "\xff"}',
        b'{"model": "\\ud800"}',
        b'{"temperature": NaN}',
        b'{"temperature": 1e999}',
        b'{"x":' * 100_000,
        b'{"x":' + b"[" * 100_000,
        b"{} {}",
    ],
    ids=lambda body: repr(body[:20]),
)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_what_is_no_json_object_is_refused(server: RunningServer, path: str, body: bytes) -> None:
    check_error(httpx.post(server.url + path, content=body, timeout=60), 400)


def test_a_lone_surrogate_is_refused(server: RunningServer) -> None:
    body = json.dumps(completion(prompt="\ud83d")).encode()

    check_error(httpx.post(server.url + COMPLETIONS, content=body, timeout=60), 400)


def test_unknown_fields_and_neutral_values_are_accepted(server: RunningServer) -> None:
    harmless = {
        "metadata": {"a": [1]},
        "store": False,
        "some_future_field": {"deep": [[]]},
        "n": 1,
        "presence_penalty": 0,
        "logprobs": False,
        "tools": [],
        "tool_choice": "auto",
        "response_format": {"type": "text"},
        "logit_bias": {},
        "top_k": -1,
        "min_p": 0.0,
        "temperature": None,
        "stop": None,
        "seed": None,
        "stream_options": None,
        "user": "me",
    }
    response = server.post(CHAT, chat(**harmless))

    assert response.status_code == 200, response.text


def test_content_may_come_in_text_parts(server: RunningServer) -> None:
    parts = [{"type": "text", "text": "hi"}]
    in_parts = server.post(CHAT, chat(messages=[{"role": "user", "content": parts}]))
    plain = server.post(CHAT, chat())

    assert in_parts.json()["choices"] == plain.json()["choices"]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_an_unknown_model_is_not_found(server: RunningServer, path: str) -> None:
    body = chat() | completion() | {"model": "gpt-4"}
    error = check_error(server.post(path, body), 404, "model")

    assert error["code"] == "model_not_found"
    assert MODEL in error["message"]


def test_an_unknown_route_is_not_found(server: RunningServer) -> None:
    check_error(server.get("/v1/nothing"), 404)


def test_a_wrong_method_is_not_allowed(server: RunningServer) -> None:
    response = server.get(CHAT)

    check_error(response, 405)
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize(
    "path", ["/", "/healthz", "/readyz", "/metrics", "/v1/models", "/openapi.json"]
)
def test_head_is_answered_with_the_head_of_get(server: RunningServer, path: str) -> None:
    answer, whole = httpx.head(server.url + path), server.get(path)

    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"] == whole.headers["content-type"]
    assert int(answer.headers["content-length"]) > 0


def test_the_head_of_a_stream_ends(server: RunningServer) -> None:
    answer = httpx.head(server.url + "/state/stream", timeout=30)

    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")


def test_a_head_of_what_takes_post_alone_is_not_allowed(server: RunningServer) -> None:
    answer = httpx.head(server.url + CHAT)

    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("num_words", [9000, 3_000_000])
def test_a_prompt_that_is_too_long_has_the_code_that_agents_look_for(
    server: RunningServer, num_words: int
) -> None:
    for path, body in (
        (COMPLETIONS, completion(prompt="a" * num_words)),
        (CHAT, chat(messages=[{"role": "user", "content": "a" * num_words}])),
        ("/v1/responses", {"model": MODEL, "input": "a" * num_words}),
    ):
        error = check_error(server.post(path, body), 400)
        assert error["code"] == "context_length_exceeded"
        assert "maximum context length is 8192 tokens" in error["message"]


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/embeddings"])
def test_a_model_must_be_named(server: RunningServer, path: str) -> None:
    error = check_error(server.post(path, {"input": "hi"}), 400, "model")

    assert error["code"] == "missing_required_parameter"


def test_a_large_body_is_refused_announced_or_not() -> None:
    with RunningServer(*SIMULATED, "--max-body-bytes", "1000") as small:
        body = json.dumps(completion(prompt="x" * 2000)).encode()
        announced = httpx.post(small.url + COMPLETIONS, content=body, timeout=60)
        chunked = httpx.post(
            small.url + COMPLETIONS, content=iter([body[:900], body[900:]]), timeout=60
        )
        fitting = small.post(COMPLETIONS, completion())

    check_error(announced, 413)
    check_error(chunked, 413)
    assert fitting.status_code == 200


async def test_a_full_queue_is_told_when_to_come_again(http: httpx.AsyncClient) -> None:
    flags = ("--simulated-step-seconds", "0.05", "--max-num-seqs", "1", "--max-waiting-requests")
    with RunningServer(*SIMULATED, *flags, "1") as narrow:
        url = narrow.url + COMPLETIONS
        async with http.stream("POST", url, json=completion(max_tokens=5000, stream=True)):
            wait_until(lambda: narrow.state().sequences.running == 1)
            waiting = asyncio.create_task(http.post(url, json=completion()))
            await wait_until_async(lambda: narrow.state().sequences.waiting == 1)
            refused = await http.post(url, json=completion())
            waiting.cancel()

    error = check_error(refused, 429)
    assert error["code"] == "rate_limit_exceeded"
    assert int(refused.headers["retry-after"]) >= 1
    assert int(refused.headers["retry-after-ms"]) >= 1


def test_broken_http_and_half_bodies_leave_the_server_well(server: RunningServer) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    half = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{"
    for broken in (b"nonsense\r\n\r\n", half):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(broken)

    assert server.post(COMPLETIONS, completion()).status_code == 200
    server.wait_until_idle()


def test_what_is_no_http_is_told_so_in_the_same_words(server: RunningServer) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"nonsense\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(4096), b""))

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["code"] == "invalid_http"
