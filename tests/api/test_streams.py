"""Streams byte by byte, alone and two hundred at a time."""

import asyncio
from typing import Any

import httpx

from tests.api.events import DONE, check_ends_once, parse_events, text_of
from tests.api.servers import MODEL, RunningServer

CHAT = "/v1/chat/completions"


def chat(**changes: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Where is the lighthouse?"}]
    return {"model": MODEL, "messages": messages, "max_tokens": 8, "stream": True} | changes


def test_every_event_of_a_chat_stream_is_as_specified(server: RunningServer) -> None:
    response = server.post(CHAT, chat(stream_options={"include_usage": True}))
    events = parse_events(response.text)

    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    head = {key: events[0][key] for key in ("id", "object", "created", "model")}
    assert head["object"] == "chat.completion.chunk"
    *chunks, usage, done = events
    for chunk in chunks:
        assert {key: chunk[key] for key in head} == head
        assert chunk["usage"] is None
        (choice,) = chunk["choices"]
        assert choice["index"] == 0
        assert choice["logprobs"] is None
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert all(set(delta) == {"content"} and delta["content"] for delta in deltas[1:-1])
    assert deltas[-1] == {}
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None] * (
        len(chunks) - 1
    )
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 8
    assert done == DONE


def test_without_usage_no_chunk_has_the_field(server: RunningServer) -> None:
    events = parse_events(server.post(CHAT, chat()).text)

    assert all("usage" not in event for event in events[:-1])
    assert check_ends_once(events) == "finish"


def test_one_token_still_makes_a_whole_stream(server: RunningServer) -> None:
    events = parse_events(server.post(CHAT, chat(max_tokens=1)).text)

    deltas = [event["choices"][0]["delta"] for event in events[:-1]]
    assert [set(delta) for delta in deltas] == [{"role", "content"}, {"content"}, set()]


async def test_two_hundred_streams_at_once_each_get_their_own_text(
    server: RunningServer, http: httpx.AsyncClient
) -> None:
    async def ask(number: int, is_stream: bool) -> str:
        body = chat(
            messages=[{"role": "user", "content": f"Question {number}"}],
            max_tokens=40 + number % 7,
            stream=is_stream,
        )
        response = await http.post(server.url + CHAT, json=body)
        assert response.status_code == 200, response.text
        if not is_stream:
            return str(response.json()["choices"][0]["message"]["content"])
        events = parse_events(response.text)
        assert check_ends_once(events) == "finish"
        return text_of(events)

    streamed = await asyncio.gather(*(ask(number, True) for number in range(200)))
    whole = await asyncio.gather(*(ask(number, False) for number in range(0, 200, 10)))

    assert [len(text) for text in streamed] == [40 + number % 7 for number in range(200)]
    assert list(streamed[::10]) == list(whole)
    assert len(set(streamed)) > 150
    server.wait_until_idle()
