"""Beam search and best_of over HTTP: what comes, what it costs, and what is refused."""

import json
import math
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.api.servers import MODEL, SIMULATED, RunningServer

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PROMPT = "The keeper of the lighthouse climbs the stairs."
BEAMS: dict[str, Any] = {"use_beam_search": True, "beam_width": 4}


@pytest.fixture(scope="module")
def tight_server() -> Iterator[RunningServer]:
    """Room for eight sequences, and for little more than one that is as long as can be."""
    flags = ("--max-num-seqs", "8", "--max-model-len", "2048", "--max-num-blocks", "160")
    with RunningServer(*SIMULATED, "--simulated-step-seconds", "0", *flags) as running:
        yield running


def body(path: str = COMPLETIONS, **fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"model": MODEL, "max_tokens": 12, "prompt": PROMPT} | fields
    if path == CHAT:
        made["messages"] = [{"role": "user", "content": made.pop("prompt")}]
    return made


def ask(server: RunningServer, path: str = COMPLETIONS, **fields: Any) -> dict[str, Any]:
    response = server.post(path, body(path, **fields))
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def text_of(choice: dict[str, Any]) -> str:
    text: str = choice["message"]["content"] if "message" in choice else choice["text"]
    return text


def mean_logprob(choice: dict[str, Any]) -> float:
    scores = choice["logprobs"]["token_logprobs"]
    return math.fsum(scores) / len(scores)


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_the_n_best_come_and_the_same_every_time(server: RunningServer, path: str) -> None:
    first = ask(server, path, **BEAMS, n=3)
    again = ask(server, path, **BEAMS, n=3, temperature=0, seed=3)
    texts = [text_of(choice) for choice in first["choices"]]
    assert [choice["index"] for choice in first["choices"]] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert texts == [text_of(choice) for choice in again["choices"]]
    assert first["usage"]["completion_tokens"] == 3 * 12
    server.wait_until_idle()


def test_the_best_comes_first_and_best_of_is_the_width_too(server: RunningServer) -> None:
    by_width = ask(server, **BEAMS, n=4, logprobs=2)["choices"]
    by_best_of = ask(server, use_beam_search=True, best_of=4, n=2)["choices"]
    by_n = ask(server, use_beam_search=True, n=4)["choices"]
    scores = [mean_logprob(choice) for choice in by_width]
    assert scores == sorted(scores, reverse=True)
    assert [len(choice["logprobs"]["tokens"]) for choice in by_width] == [12] * 4
    assert [text_of(c) for c in by_best_of] == [text_of(c) for c in by_width[:2]]
    assert [text_of(c) for c in by_n] == [text_of(c) for c in by_width]


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_a_stream_has_the_answers_whole(server: RunningServer, path: str) -> None:
    whole = ask(server, path, **BEAMS, n=2)
    wanted = body(path, **BEAMS, n=2, stream=True, stream_options={"include_usage": True})
    events = [
        line.removeprefix("data: ")
        for line in server.post(path, wanted).text.splitlines()
        if line.startswith("data: ")
    ]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    texts, reasons = {0: "", 1: ""}, {}
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        delta = choice.get("delta", choice)
        texts[choice["index"]] += delta.get("text") or delta.get("content") or ""
        if choice["finish_reason"]:
            reasons[choice["index"]] = choice["finish_reason"]
    assert list(texts.values()) == [text_of(choice) for choice in whole["choices"]]
    assert reasons == {0: "length", 1: "length"}
    assert chunks[-1]["usage"]["completion_tokens"] == 24


def test_stop_texts_end_each_answer_for_itself(server: RunningServer) -> None:
    stops = ["e", "i"]
    kept = ask(server, **BEAMS, n=4, stop=stops, include_stop_str_in_output=True, max_tokens=40)
    cut = ask(server, **BEAMS, n=4, stop=stops, max_tokens=40)
    for with_stop, without in zip(kept["choices"], cut["choices"], strict=True):
        assert with_stop["finish_reason"] == without["finish_reason"] == "stop"
        assert text_of(with_stop)[-1] in stops
        assert text_of(with_stop)[:-1] == text_of(without)
        assert not set(stops) & set(text_of(without))
    token = ask(server, **BEAMS, n=4, stop_token_ids=list(b"ei"), max_tokens=40)
    assert {choice["finish_reason"] for choice in token["choices"]} == {"stop"}


def test_one_token_each_and_scores_of_the_prompt(server: RunningServer) -> None:
    answer = ask(server, **BEAMS, n=4, max_tokens=1, logprobs=1, echo=True)
    scores = [choice["logprobs"] for choice in answer["choices"]]
    assert all(len(score["tokens"]) == len(PROMPT) + 1 for score in scores)
    assert len({score["tokens"][-1] for score in scores}) == 4
    (choice,) = ask(server, **BEAMS, prompt_logprobs=1)["choices"]
    assert len(choice["prompt_logprobs"]) == len(PROMPT)


def test_several_prompts_are_searched_for_at_once(server: RunningServer) -> None:
    prompts = ["One", "Two", "Three"]
    together = ask(server, **BEAMS, n=2, prompt=prompts)["choices"]
    alone = [c for prompt in prompts for c in ask(server, **BEAMS, n=2, prompt=prompt)["choices"]]
    assert [text_of(choice) for choice in together] == [text_of(choice) for choice in alone]


def test_best_of_gives_the_likeliest_and_counts_all(server: RunningServer) -> None:
    fields: dict[str, Any] = {"seed": 5, "stop": ["e"], "max_tokens": 40}
    all_six = ask(server, n=6, logprobs=0, **fields)
    best = ask(server, best_of=6, n=2, logprobs=0, **fields)
    ranked = sorted(all_six["choices"], key=mean_logprob, reverse=True)
    assert [text_of(c) for c in best["choices"]] == [text_of(c) for c in ranked[:2]]
    assert [choice["index"] for choice in best["choices"]] == [0, 1]
    assert best["usage"]["completion_tokens"] == all_six["usage"]["completion_tokens"]
    plain = ask(server, best_of=6, n=2, echo=True, **fields)
    assert all(choice["logprobs"] is None for choice in plain["choices"])
    assert all(text_of(choice).startswith(PROMPT) for choice in plain["choices"])
    assert len(ask(server, CHAT, best_of=3, n=1, **fields)["choices"]) == 1


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"use_beam_search": "yes"}, "use_beam_search"),
        (BEAMS | {"beam_width": 0}, "beam_width"),
        (BEAMS | {"beam_width": 129}, "beam_width"),
        (BEAMS | {"beam_width": 2**40}, "beam_width"),
        (BEAMS | {"n": 5}, "n"),
        (BEAMS | {"best_of": 5}, "best_of"),
        (BEAMS | {"temperature": 0.7}, "temperature"),
        (BEAMS | {"top_p": 0.9}, "top_p"),
        (BEAMS | {"top_k": 3}, "top_k"),
        (BEAMS | {"min_p": 0.1}, "min_p"),
        (BEAMS | {"presence_penalty": 1}, "presence_penalty"),
        (BEAMS | {"repetition_penalty": 1.1}, "repetition_penalty"),
        (BEAMS | {"logit_bias": {"5": 1}}, "logit_bias"),
        (BEAMS | {"allowed_token_ids": [5]}, "allowed_token_ids"),
        (BEAMS | {"bad_words": ["sea"]}, "bad_words"),
        (BEAMS | {"length_penalty": 1000}, "length_penalty"),
        (BEAMS | {"length_penalty": "long"}, "length_penalty"),
        (BEAMS | {"early_stopping": "sometimes"}, "early_stopping"),
        (BEAMS | {"response_format": {"type": "json_object"}}, "response_format"),
        (BEAMS | {"structured_outputs": {"regex": "a+"}}, "structured_outputs"),
        (BEAMS | {"guided_choice": ["a", "b"]}, "structured_outputs"),
        (BEAMS | {"max_tokens": 8000, "beam_width": 128}, "max_tokens"),
        ({"beam_width": 4}, "beam_width"),
        ({"length_penalty": 2}, "length_penalty"),
        ({"early_stopping": True}, "early_stopping"),
        ({"best_of": 2, "n": 3}, "best_of"),
        ({"best_of": 3, "n": 2, "stream": True}, "best_of"),
    ],
)
def test_what_contradicts_itself_is_named(
    tight_server: RunningServer, path: str, fields: dict[str, Any], param: str
) -> None:
    response = tight_server.post(path, body(path, **fields))
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param


def test_more_beams_than_can_run_are_refused(tight_server: RunningServer) -> None:
    response = tight_server.post(COMPLETIONS, body(use_beam_search=True, beam_width=9))
    assert response.status_code == 400
    assert "8 that can run" in response.json()["error"]["message"]


def test_an_open_length_is_what_all_beams_have_room_for(tight_server: RunningServer) -> None:
    wanted = body(CHAT, use_beam_search=True, beam_width=8, length_penalty=-1)
    del wanted["max_tokens"]
    answer = tight_server.post(CHAT, wanted).json()
    used = answer["usage"]["prompt_tokens"] + answer["usage"]["completion_tokens"]
    assert 100 < used < 2048
    assert answer["choices"][0]["finish_reason"] == "length"


def test_what_changes_nothing_is_taken(server: RunningServer) -> None:
    neutral: dict[str, Any] = {"temperature": 1, "top_p": 1, "top_k": -1, "logit_bias": {}}
    assert len(ask(server, **BEAMS, **neutral, min_tokens=3, ignore_eos=True)["choices"]) == 1
    assert len(ask(server, use_beam_search=True, beam_width=1)["choices"]) == 1


def test_openais_client_asks_for_it_with_extra_fields(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=5, n=2, extra_body=BEAMS | {"length_penalty": 0.5}
    )
    assert len(answer.choices) == 2
    assert client.completions.create(model=MODEL, prompt="a", best_of=3, max_tokens=2).choices


async def test_a_client_that_leaves_ends_its_search(
    slow_server: RunningServer, http: httpx.AsyncClient
) -> None:
    wanted = body(max_tokens=2000, stream=True, n=2, **BEAMS)
    async with http.stream("POST", slow_server.url + COMPLETIONS, json=wanted):
        pass
    slow_server.wait_until_idle()
