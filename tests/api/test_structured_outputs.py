"""Answers of a given form, over HTTP: OpenAI's field and vLLM's, and what cannot be heeded."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import jsonschema
import openai
import pytest
from pydantic import BaseModel

from tests.api.gateways import BOTH_WAYS
from tests.api.scraping import scrape
from tests.api.servers import MODEL, RunningServer
from tests.api.test_many_answers import join, stream

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PROMPT = "Describe a lighthouse."
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "height": {"type": "integer", "minimum": 1, "maximum": 200},
        "colours": {"type": "array", "items": {"enum": ["red", "white"]}, "minItems": 1},
    },
    "required": ["name", "height", "colours"],
    "additionalProperties": False,
}
BY_SCHEMA = {"type": "json_schema", "json_schema": {"name": "lighthouse", "schema": SCHEMA}}


def post(server: RunningServer, path: str = COMPLETIONS, **fields: Any) -> httpx.Response:
    body: dict[str, Any] = {"model": MODEL, "max_tokens": 200, "prompt": PROMPT} | fields
    if path == CHAT:
        body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
    return httpx.post(server.url + path, json=body, timeout=300)


def answers(server: RunningServer, path: str = COMPLETIONS, **fields: Any) -> list[tuple[str, str]]:
    """Text and finish reason of each answer."""
    response = post(server, path, **fields)
    assert response.status_code == 200, response.text
    return [
        (choice["text"] if path == COMPLETIONS else choice["message"]["content"],
         choice["finish_reason"])
        for choice in response.json()["choices"]
    ]  # fmt: skip


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize(
    "wish",
    [
        {"response_format": BY_SCHEMA},
        {"structured_outputs": {"json": SCHEMA}},
        {"guided_json": SCHEMA},
        {"guided_json": json.dumps(SCHEMA)},
    ],
    ids=["openai", "vllm", "vllm before", "as a string"],
)
def test_an_answer_is_valid_by_the_schema(
    server: RunningServer, path: str, wish: dict[str, Any]
) -> None:
    for text, reason in answers(server, path, n=2, seed=3, **wish):
        assert reason == "stop"
        jsonschema.validate(json.loads(text), SCHEMA)


@pytest.mark.parametrize("prefix", ["guided_", "structured_outputs."])
@pytest.mark.parametrize(
    ("name", "value", "form"),
    [
        ("regex", "[0-9]{3}-[a-c]{2}", "[0-9]{3}-[a-c]{2}"),
        ("choice", ["north", "south"], "north|south"),
        ("grammar", 'root ::= "<" [0-9] root2\nroot2 ::= ">"', "<[0-9]>"),
    ],
)
def test_an_answer_has_the_form(
    server: RunningServer, prefix: str, name: str, value: Any, form: str
) -> None:
    wish = {f"guided_{name}": value}
    if prefix == "structured_outputs.":
        wish = {"structured_outputs": {name: value}}
    ((text, reason),) = answers(server, **wish)
    assert re.fullmatch(form, text)
    assert reason == "stop"


def test_any_object_is_asked_for_in_two_ways(server: RunningServer) -> None:
    for wish in (
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"json_object": True}},
    ):
        ((text, reason),) = answers(server, **wish)
        assert isinstance(json.loads(text), dict)
        assert reason == "stop"


@BOTH_WAYS
def test_openais_client_parses_answers(client: openai.OpenAI) -> None:
    class Lighthouse(BaseModel):
        name: str
        height: int
        is_lit: bool

    answer = client.chat.completions.parse(
        model=MODEL, messages=[{"role": "user", "content": PROMPT}], response_format=Lighthouse
    )
    assert isinstance(answer.choices[0].message.parsed, Lighthouse)


def test_a_stream_is_the_whole_answer(server: RunningServer) -> None:
    ((text, reason),) = answers(server, response_format=BY_SCHEMA, seed=7)
    chunks = stream(server, prompt=PROMPT, max_tokens=200, response_format=BY_SCHEMA, seed=7)
    assert join(chunks)[0]["text"] == text
    assert join(chunks)[0]["finish_reason"] == reason == "stop"


def test_an_answer_that_max_tokens_cuts_says_so(server: RunningServer) -> None:
    ((text, reason),) = answers(server, response_format=BY_SCHEMA, max_tokens=5)
    assert reason == "length"
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)


def test_a_whole_answer_of_just_max_tokens_is_whole(server: RunningServer) -> None:
    assert answers(server, guided_regex="[a-z]{8}", max_tokens=8)[0][1] == "stop"


def test_a_stop_text_ends_an_answer_wherever_it_is(server: RunningServer) -> None:
    ((text, reason),) = answers(server, response_format=BY_SCHEMA, stop=['"height"'])
    assert '"height"' not in text
    assert reason == "stop"


def test_other_parameters_go_along(server: RunningServer) -> None:
    response = post(
        server,
        CHAT,
        response_format=BY_SCHEMA,
        min_tokens=190,
        logit_bias={"97": -5},
        logprobs=True,
        top_logprobs=2,
        ignore_eos=True,
    )
    (choice,) = response.json()["choices"]
    jsonschema.validate(json.loads(choice["message"]["content"]), SCHEMA)
    assert choice["finish_reason"] == "stop"
    assert (
        "".join(t["token"] for t in choice["logprobs"]["content"]) == choice["message"]["content"]
    )


@pytest.mark.parametrize(
    ("wish", "parameter", "reason"),
    [
        ({"guided_json": {"not": {}}}, "guided_json", "/not"),
        ({"guided_json": {"$ref": "https://example.com"}}, "guided_json", "same schema"),
        ({"guided_json": "{"}, "guided_json", "not JSON"),
        ({"guided_json": {"minimum": 3, "maximum": 2, "type": "integer"}}, "guided_json",
         "contradicts itself"),
        ({"guided_regex": "("}, "guided_regex", "not a regular expression"),
        ({"guided_regex": "(?=a)b"}, "guided_regex", "(?=a"),
        ({"guided_grammar": "root ::= a"}, "guided_grammar", "not defined"),
        ({"guided_choice": []}, "guided_choice", "length"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "structured_outputs", "only one"),
        ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "response_format",
         "only one"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "json_schema"),
        ({"structured_outputs": {"whitespace_pattern": " "}}, "structured_outputs",
         "not supported"),
        ({"guided_regex": "a", "bad_words": ["a"]}, "bad_words", "not together"),
        ({"guided_regex": "a", "allowed_token_ids": [1]}, "allowed_token_ids", "not together"),
    ],
)  # fmt: skip
def test_what_cannot_be_heeded_is_refused_and_says_what(
    server: RunningServer, wish: dict[str, Any], parameter: str, reason: str
) -> None:
    for _ in range(2):  # a refusal is kept, and is the same from memory
        response = post(server, **wish)
        assert response.status_code == 400, response.text
        error = response.json()["error"]
        assert error["param"] == parameter
        assert reason in error["message"]


def test_bad_grammars_beside_good_requests_harm_nobody(server: RunningServer) -> None:
    def good(number: int) -> list[tuple[str, str]]:
        return answers(server, response_format=BY_SCHEMA, seed=number)

    def bad(number: int) -> int:
        # no two are alike, and all take long to compile
        pattern = f"(([a-z]{{1,900}}x?){{1,900}}y?){{1,{900 + number}}}z"
        return post(server, guided_regex=pattern).status_code

    alone = [good(number) for number in range(8)]
    with ThreadPoolExecutor(12) as pool:
        refused = [pool.submit(bad, number) for number in range(2)]
        beside = [task.result() for task in [pool.submit(good, number) for number in range(8)]]
        assert [task.result() for task in refused] == [400, 400]
    assert beside == alone


def test_what_is_compiled_is_counted_and_kept(server: RunningServer) -> None:
    def counted() -> list[float]:
        samples = scrape(server)
        names = ("compile_seconds_count", "cache_hits_total", "failures_total")
        return [samples[f"quire_grammar_{name}"] for name in names]

    before = counted()
    for _ in range(3):
        answers(server, guided_choice=["a lighthouse", "a ship", "a gull"])
    post(server, guided_regex="(counted")
    compiled, hits, failures = (now - then for now, then in zip(counted(), before, strict=True))
    assert (compiled, hits, failures) == (2, 2, 1)
