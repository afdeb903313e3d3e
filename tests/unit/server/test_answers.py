"""The bytes of answers: prepared parts joined are what encoding each chunk anew would give."""

import json
from typing import Any

import pytest

from quire_engine.server.answers import AnswerFormat, ChatAnswer, CompletionAnswer
from quire_engine.server.schemas.chat import ChatMessage, ChatRequest
from quire_engine.server.schemas.completions import CompletionRequest
from quire_engine.server.schemas.parameters import StreamOptions
from quire_engine.server.schemas.usage import make_usage
from quire_engine.server.text_maker import Piece

AWKWARD = ['"', "\\", "\n", "\x00text", "é", "😀", "</script>", "\u2028", "data: [DONE]\n\n", ""]


def decode(event: bytes) -> dict[str, Any]:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert event.count(b"\n") == 2
    decoded: dict[str, Any] = json.loads(event.removeprefix(b"data: "))
    return decoded


def chat_answer(**parameters: Any) -> ChatAnswer:
    messages = [ChatMessage(role="user", content="hi")]
    return ChatAnswer(ChatRequest(model='odd "name"', messages=messages, **parameters))


def completion_answer(**parameters: Any) -> CompletionAnswer:
    return CompletionAnswer(CompletionRequest(model='odd "name"', prompt="hi", **parameters))


@pytest.mark.parametrize("text", AWKWARD)
def test_any_text_survives_in_a_chat_event(text: str) -> None:
    answer = chat_answer()
    chunk = decode(answer.text_event(0, Piece(text)))

    assert chunk["choices"][0]["delta"] == {"content": text}
    assert chunk["id"] == answer.id
    assert chunk["model"] == 'odd "name"'


@pytest.mark.parametrize("text", AWKWARD)
def test_any_text_survives_in_a_completion_event(text: str) -> None:
    chunk = decode(completion_answer().text_event(0, Piece(text)))

    assert chunk["choices"] == [
        {"index": 0, "text": text, "logprobs": None, "finish_reason": None, "stop_reason": None}
    ]
    assert "usage" not in chunk


@pytest.mark.parametrize("make", [chat_answer, completion_answer])
def test_usage_is_null_until_the_last_chunk_if_asked_for(make: Any) -> None:
    answer: AnswerFormat = make(stream=True, stream_options=StreamOptions(include_usage=True))
    usage = decode(answer.usage_event(make_usage(3, 5, 2)))

    assert decode(answer.text_event(0, Piece("x")))["usage"] is None
    assert usage["choices"] == []
    assert usage["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 5,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 2},
    }


def test_a_held_back_end_of_text_comes_before_the_finish_chunk() -> None:
    answer = chat_answer()
    text, finish, nothing = answer.finish_event(0, Piece("end"), "stop", 7).split(b"\n\n")

    assert json.loads(text[6:])["choices"][0]["delta"] == {"content": "end"}
    assert json.loads(finish[6:])["choices"][0] == {
        "index": 0,
        "delta": {},
        "logprobs": None,
        "finish_reason": "stop",
        "stop_reason": 7,
    }
    assert nothing == b""
