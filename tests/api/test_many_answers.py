"""Several answers to one request: n, lists of prompts, echo; streamed and whole to the letter."""

import json
from typing import Any

import httpx
import openai
import pytest

from tests.api.gateways import BOTH_WAYS
from tests.api.servers import MODEL, RunningServer

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PROMPT = "The keeper of the lighthouse climbs the stairs."


def ask(server: RunningServer, path: str = COMPLETIONS, **fields: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"model": MODEL, "max_tokens": 20, "seed": 7} | fields
    if path == CHAT:
        body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
    response = server.post(path, body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def stream(server: RunningServer, path: str = COMPLETIONS, **fields: Any) -> list[dict[str, Any]]:
    body: dict[str, Any] = {"model": MODEL, "max_tokens": 20, "seed": 7, "stream": True}
    body |= {"stream_options": {"include_usage": True}} | fields
    if path == CHAT:
        body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
    text = server.post(path, body).text
    *events, done, nothing = text.split("\n\n")
    assert (done, nothing) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def join(chunks: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Put the choices of a stream together, as a client does."""
    joined: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            whole = joined.setdefault(choice["index"], {"text": "", "scores": [], "offsets": []})
            assert whole.get("finish_reason") is None, "nothing comes after the finish reason"
            delta = choice.get("delta", choice)
            whole["text"] += delta.get("text") or delta.get("content") or ""
            whole["finish_reason"] = choice["finish_reason"]
            whole["stop_reason"] = choice.get("stop_reason")
            if choice["logprobs"] is not None:
                whole["scores"] += scores_of(choice["logprobs"])
                whole["offsets"] += choice["logprobs"].get("text_offset", [])
    return joined


def scores_of(logprobs: dict[str, Any]) -> list[Any]:
    if "content" in logprobs:
        return list(logprobs["content"])
    names = ("tokens", "token_logprobs", "top_logprobs")
    return list(zip(*(logprobs[name] for name in names), strict=True))


CASES: dict[str, dict[str, Any]] = {
    "one": {"prompt": PROMPT},
    "three": {"prompt": PROMPT, "n": 3},
    "scored": {"prompt": PROMPT, "n": 2, "logprobs": 2},
    "stopped": {"prompt": PROMPT, "n": 3, "stop": ["ar", "en", "o"]},
    "stopped by a token": {"prompt": PROMPT, "stop_token_ids": list(b"ei")},
    "stop kept": {"prompt": PROMPT, "stop": ["ar", "en", "o"], "include_stop_str_in_output": True},
    "at least some": {"prompt": PROMPT, "stop": ["a", "e", "i", "o"], "min_tokens": 9},
    "two prompts": {"prompt": [PROMPT, "The sea"], "n": 2, "logprobs": 0},
    "token ids": {"prompt": [list(b"The sea"), list(b"A gull")], "max_tokens": 7},
    "echo": {"prompt": [PROMPT, "\u65e5\U0001f600 sea"], "echo": True, "n": 2},
    "echo scored": {"prompt": ["\u65e5\U0001f600 sea", "A"], "echo": True, "logprobs": 1, "n": 2},
    "echo alone": {"prompt": PROMPT, "echo": True, "logprobs": 1, "max_tokens": 0},
}


@pytest.mark.parametrize("name", CASES)
def test_a_stream_is_the_whole_answer(server: RunningServer, name: str) -> None:
    whole, chunks = ask(server, **CASES[name]), stream(server, **CASES[name])
    joined = join(chunks)

    assert [choice["index"] for choice in whole["choices"]] == sorted(joined)
    for choice in whole["choices"]:
        streamed = joined[choice["index"]]
        assert streamed["text"] == choice["text"]
        assert streamed["finish_reason"] == choice["finish_reason"]
        assert streamed["stop_reason"] == choice["stop_reason"]
        expected = scores_of(choice["logprobs"]) if choice["logprobs"] else []
        assert streamed["scores"] == expected
    usage = chunks[-1]["usage"]
    assert chunks[-1]["choices"] == []
    cached = whole["usage"].pop("prompt_tokens_details"), usage.pop("prompt_tokens_details")
    assert usage == whole["usage"], cached


@pytest.mark.parametrize("name", ["one", "three", "stopped", "at least some"])
@pytest.mark.parametrize("is_scored", [False, True])
def test_a_chat_stream_is_the_whole_answer(
    server: RunningServer, name: str, is_scored: bool
) -> None:
    fields = CASES[name] | ({"logprobs": True, "top_logprobs": 2} if is_scored else {})
    whole, joined = ask(server, CHAT, **fields), join(stream(server, CHAT, **fields))

    assert sorted(joined) == list(range(fields.get("n", 1)))
    for choice in whole["choices"]:
        streamed = joined[choice["index"]]
        assert streamed["text"] == choice["message"]["content"]
        assert streamed["finish_reason"] == choice["finish_reason"]
        assert streamed["scores"] == (choice["logprobs"]["content"] if is_scored else [])
    assert (whole["choices"][0]["logprobs"] is None) is not is_scored


def test_answers_have_seeds_that_count_up(server: RunningServer) -> None:
    """A simulated answer depends on the request's seed, so all n are one; a model's differ."""
    together = ask(server, prompt=PROMPT, n=3)
    assert [choice["index"] for choice in together["choices"]] == [0, 1, 2]
    assert together["usage"]["completion_tokens"] == 3 * 20
    assert together["usage"]["prompt_tokens"] == len(PROMPT)


def test_each_prompt_of_a_list_is_answered_as_if_alone(server: RunningServer) -> None:
    prompts = ["One", "Two", "Three"]
    together = ask(server, prompt=prompts)
    alone = [ask(server, prompt=prompt)["choices"][0]["text"] for prompt in prompts]

    assert [choice["text"] for choice in together["choices"]] == alone
    assert together["usage"]["prompt_tokens"] == len("OneTwoThree")
    assert together["usage"]["completion_tokens"] == 60


def test_cached_tokens_count_once_for_a_prompt(server: RunningServer) -> None:
    prompt = "Cached tokens are those that the first of several answers found. " * 2
    ask(server, prompt=prompt, n=2)
    again = ask(server, prompt=prompt, n=2)["usage"]
    assert again["prompt_tokens_details"]["cached_tokens"] == len(prompt) // 16 * 16


def test_usage_so_far_is_in_every_chunk(server: RunningServer) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = stream(server, prompt=PROMPT, n=2, stream_options=options)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == 40
    assert {chunk["usage"]["prompt_tokens"] for chunk in chunks} == {len(PROMPT)}


def test_an_echo_has_scores_for_all_but_the_first_token(server: RunningServer) -> None:
    prompt = "\u65e5 sea"
    (choice,) = ask(server, prompt=prompt, echo=True, logprobs=1, max_tokens=2)["choices"]
    scores = choice["logprobs"]
    num_tokens = len(prompt.encode()) + 2
    assert choice["text"].startswith(prompt)
    assert scores["token_logprobs"][0] is scores["top_logprobs"][0] is None
    assert all(score < 0 for score in scores["token_logprobs"][1:])
    assert len(scores["tokens"]) == num_tokens
    assert scores["text_offset"] == [0, 0, 0, 1, 2, 3, 4, 5, 6]


def test_bytes_of_scores_joined_are_the_text(server: RunningServer) -> None:
    answer = ask(server, CHAT, prompt=PROMPT, logprobs=True, top_logprobs=3)
    (choice,) = answer["choices"]
    content = choice["logprobs"]["content"]
    joined = b"".join(bytes(token["bytes"]) for token in content)
    assert joined.decode() == choice["message"]["content"]
    assert all(len(token["top_logprobs"]) == 3 for token in content)


def test_prompt_scores_are_vllms(server: RunningServer) -> None:
    (choice,) = ask(server, prompt="sea", prompt_logprobs=1, max_tokens=1)["choices"]
    first, second, _ = choice["prompt_logprobs"]
    assert first is None
    assert second[str(ord("e"))]["decoded_token"] == "e"
    assert second[str(ord("e"))]["rank"] == 1
    answer = ask(server, CHAT, prompt="sea", prompt_logprobs=0, max_tokens=1)
    assert answer["prompt_logprobs"][0] is None
    assert "prompt_logprobs" not in ask(server, prompt="sea")["choices"][0]


@BOTH_WAYS
def test_openais_client_reads_all_of_it(client: openai.OpenAI) -> None:
    chat = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "hi"}],
        n=2, logprobs=True, top_logprobs=1, max_tokens=3, logit_bias={"5": 1},
        presence_penalty=0.5, frequency_penalty=-0.5,
        extra_body={"min_p": 0.1, "repetition_penalty": 1.1, "bad_words": ["sea"]},
    )  # fmt: skip
    scores = chat.choices[1].logprobs
    assert scores is not None
    assert scores.content is not None
    assert scores.content[0].bytes == list(scores.content[0].token.encode())
    text = client.completions.create(
        model=MODEL, prompt=["a", "b"], n=2, logprobs=1, echo=True, max_tokens=2
    )
    assert [choice.index for choice in text.choices] == [0, 1, 2, 3]
    assert text.choices[3].logprobs is not None
    assert text.choices[3].logprobs.text_offset == [0, 1, 2]


async def test_a_client_that_leaves_ends_all_its_answers(
    slow_server: RunningServer, http: httpx.AsyncClient
) -> None:
    body = {"model": MODEL, "prompt": ["One", "Two"], "n": 2, "max_tokens": 2000, "stream": True}
    async with http.stream("POST", slow_server.url + COMPLETIONS, json=body) as response:
        async for _ in response.aiter_lines():
            if slow_server.state().sequences.running == 4:
                break
    slow_server.wait_until_idle()


def test_tokens_and_text_are_turned_into_each_other(server: RunningServer) -> None:
    text = "caf\u00e9 \u65e5\U0001f600"
    tokens = server.post("/tokenize", {"prompt": text, "return_token_strs": True}).json()
    assert tokens["tokens"] == list(text.encode())
    assert tokens["count"] == len(text.encode())
    assert tokens["max_model_len"] == 8192
    assert tokens["token_strs"][:3] == ["c", "a", "f"]
    back = server.post("/detokenize", {"model": MODEL, "tokens": tokens["tokens"]}).json()
    assert back == {"prompt": text}


def test_a_conversation_is_tokenized_as_chat_does(server: RunningServer) -> None:
    messages = [{"role": "user", "content": "hi"}]
    count = server.post("/tokenize", {"messages": messages}).json()["count"]
    shorter = {"messages": messages, "add_generation_prompt": False}
    assert server.post("/tokenize", shorter).json()["count"] < count
    assert ask(server, CHAT, prompt="hi")["usage"]["prompt_tokens"] == count


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "b"}]}, "prompt"),
        ("/tokenize", {"prompt": 3}, "prompt"),
        ("/tokenize", {"prompt": "x" * 60_000}, "prompt"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [128_256]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
    ],
)
def test_bad_tokenizing_is_named(
    server: RunningServer, path: str, body: dict[str, Any], param: str
) -> None:
    response = server.post(path, body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


def test_tokenizing_for_another_model_is_not_found(server: RunningServer) -> None:
    for path, body in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [1]})):
        assert server.post(path, body | {"model": "other"}).status_code == 404
