"""Answers with calls: the deltas joined are the whole answer, and the end is told as it was."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quire_engine.protocol.sampling import TokenLogprobs
from quire_engine.server.answers import WholeAnswer
from quire_engine.server.schemas.chat import ChatMessage, ChatRequest
from quire_engine.server.schemas.parameters import StreamOptions
from quire_engine.server.schemas.tools import FunctionDefinition, Tool
from quire_engine.server.schemas.usage import EndReason, make_usage
from quire_engine.server.text_maker import Piece, ScoredToken
from quire_engine.server.tools.answer import ToolAnswer
from quire_engine.server.tools.formats import HERMES, MISTRAL, ToolFormat
from quire_engine.server.tools.setup import ToolSetup
from quire_engine.server.tools.use import choose_use
from quire_engine.tokenizing.simple import build_simple_tokenizer

TOKENIZER = build_simple_tokenizer()
USAGE = make_usage(3, 5, 0)
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


def make_answer(tool_format: ToolFormat = HERMES, **parameters: Any) -> ToolAnswer:
    tools = [
        Tool(type="function", function=FunctionDefinition(name=name)) for name in ("add", "zero")
    ]
    messages = [ChatMessage(role="user", content="hi")]
    request = ChatRequest(model="m", messages=messages, tools=tools, **parameters)
    use = choose_use(request, ToolSetup(tool_format=tool_format), TOKENIZER)
    assert use is not None
    return ToolAnswer(request, TOKENIZER.spelling, use)


def stream(answer: ToolAnswer, pieces: list[Piece], reason: EndReason = "stop") -> list[Any]:
    """The choices of an answer's chunks."""
    events = answer.first_event(0)
    for piece in pieces[:-1]:
        events += answer.text_event(0, piece)
    events += answer.finish_event(0, pieces[-1], reason, None)
    chunks = [json.loads(event[6:]) for event in events.split(b"\n\n") if event]
    return [chunk["choices"][0] for chunk in chunks]


def joined(choices: list[Any]) -> dict[str, Any]:
    """What a client makes of the deltas."""
    message: dict[str, Any] = {"content": "", "tool_calls": []}
    for choice in choices:
        delta = choice["delta"]
        message["content"] += delta.get("content") or ""
        for part in delta.get("tool_calls", ()):
            if part["index"] == len(message["tool_calls"]):
                assert part["type"] == "function"
                message["tool_calls"].append({**part["function"], "id": part["id"]})
            else:
                assert part.keys() == {"index", "function"}
                message["tool_calls"][part["index"]]["arguments"] += part["function"]["arguments"]
    return message | {"finish_reason": choices[-1]["finish_reason"]}


def whole(answer: ToolAnswer, text: str, reason: EndReason = "stop", **more: Any) -> dict[str, Any]:
    given = WholeAnswer(
        index=0, text=text, tokens=None, finish_reason=reason, stop_reason=None, **more
    )
    choice = json.loads(answer.whole([given], USAGE))["choices"][0]
    message = choice["message"]
    calls = [{**call["function"], "id": call["id"]} for call in message.get("tool_calls", ())]
    assert ("tool_calls" in message) == bool(calls)
    assert message["content"] or not calls or message["content"] is None
    return {
        "content": message["content"] or "",
        "tool_calls": calls,
        "finish_reason": choice["finish_reason"],
    }


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    calls = [{**call, "id": None} for call in message["tool_calls"]]
    return message | {"tool_calls": calls}


def test_a_call_is_shown_by_its_name_and_then_its_arguments() -> None:
    choices = stream(make_answer(), [Piece(f"Well.\n{CALL}"), Piece("")])

    deltas = [choice["delta"] for choice in choices]
    (begin,), (arguments,) = deltas[2]["tool_calls"], deltas[3]["tool_calls"]
    assert deltas[:2] == [{"role": "assistant", "content": ""}, {"content": "Well."}]
    assert begin["function"] == {"name": "add", "arguments": ""}
    assert re.fullmatch("call_[0-9a-f]{24}", begin["id"])
    assert arguments == {"index": 0, "function": {"arguments": '{"a": 1}'}}
    assert deltas[4] == {}
    assert choices[4]["finish_reason"] == "tool_calls"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), reason=st.sampled_from(["stop", "length"]))
def test_deltas_joined_are_the_whole_answer(data: st.DataObject, reason: EndReason) -> None:
    parts = st.sampled_from([CALL, "Well, ", "\n", "<tool_call>", '{"name": "zero"}', '{"a', "é"])
    text = "".join(data.draw(st.lists(parts, max_size=6)))
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [Piece(text[a:b]) for a, b in pairwise([0, *places, len(text)])]

    streamed = joined(stream(make_answer(), pieces, reason))

    assert without_ids(streamed) == without_ids(whole(make_answer(), text, reason))


@pytest.mark.parametrize(
    ("text", "reason", "expected"),
    [
        (CALL, "stop", "tool_calls"),
        (CALL, "length", "length"),
        (CALL[:-30], "length", "length"),
        ("Nothing to add.", "stop", "stop"),
        (CALL.replace("add", "sub"), "stop", "stop"),
    ],
)
def test_the_reason_of_the_end_is_true(text: str, reason: EndReason, expected: str) -> None:
    assert whole(make_answer(), text, reason)["finish_reason"] == expected
    assert joined(stream(make_answer(), [Piece(text)], reason))["finish_reason"] == expected


def test_one_call_is_all_where_calls_are_not_to_be_parallel() -> None:
    several = whole(make_answer(), CALL + CALL)
    single = whole(make_answer(parallel_tool_calls=False), CALL + CALL)

    assert len(several["tool_calls"]) == 2
    assert len({call["id"] for call in several["tool_calls"]}) == 2
    assert without_ids(single)["tool_calls"] == without_ids(several)["tool_calls"][:1]


def test_answers_to_one_prompt_have_calls_of_their_own() -> None:
    answer = make_answer(n=2)
    events = answer.text_event(1, Piece(CALL)) + answer.text_event(0, Piece(CALL + CALL))
    chunks = [json.loads(event[6:]) for event in events.split(b"\n\n") if event]
    shown = [
        (choice["index"], part["index"])
        for chunk in chunks
        for choice in chunk["choices"]
        for part in choice["delta"]["tool_calls"]
        if "name" in part["function"]
    ]

    assert shown == [(1, 0), (0, 0), (0, 1)]


def test_mistrals_ids_are_nine_letters_and_digits() -> None:
    text = '[TOOL_CALLS][{"name": "add", "arguments": {}}]'
    (call,) = whole(make_answer(MISTRAL), text)["tool_calls"]

    assert re.fullmatch("[A-Za-z0-9]{9}", call["id"])


def test_scores_of_tokens_come_with_their_text_held_back_or_not() -> None:
    scores = iter(TokenLogprobs(logprob=-float(number), rank=1) for number in range(999))

    def scored(text: str) -> Iterator[Piece]:
        for character in text:
            token = ScoredToken(ord(character), 0, next(scores))
            yield Piece(character, [token])

    text = f"Well. {CALL}"
    choices = stream(make_answer(), [*scored(text), Piece("", [])])
    tokens = [
        token["token"]
        for choice in choices
        if choice["logprobs"]
        for token in choice["logprobs"]["content"]
    ]

    assert "".join(tokens) == text
    assert joined(choices)["content"] == "Well."


def test_reasoning_comes_first_and_beside() -> None:
    messages = [ChatMessage(role="user", content="hi")]
    tools = [Tool(type="function", function=FunctionDefinition(name="add"))]
    request = ChatRequest(model="m", messages=messages, tools=tools)
    use = choose_use(request, ToolSetup(tool_format=HERMES), TOKENIZER)
    assert use is not None
    answer = ToolAnswer(request, TOKENIZER.spelling, use, splits_reasoning=True)

    choices = stream(
        answer, [Piece("", reasoning="Hm"), Piece("\n" + CALL, reasoning="."), Piece("")]
    )

    thought = "".join(choice["delta"].get("reasoning_content", "") for choice in choices)
    assert thought == "Hm."
    assert joined(choices)["tool_calls"][0]["arguments"] == '{"a": 1}'


def test_every_chunk_has_counts_where_that_is_asked_for() -> None:
    options = StreamOptions(include_usage=True, continuous_usage_stats=True)
    answer = make_answer(stream=True, stream_options=options)
    events = answer.text_event(0, Piece(f"Well. {CALL}"), USAGE)
    chunks = [json.loads(event[6:]) for event in events.split(b"\n\n") if event]

    assert len(chunks) == 3
    assert all(chunk["usage"]["completion_tokens"] == 5 for chunk in chunks)
