"""Error bodies, and when clients are told to come again."""

import json

import msgspec
import pytest

from quire_engine.errors import EngineDeadError, ModelError, RequestError
from quire_engine.server.errors import (
    ApiError,
    PromptTooLongError,
    RequestTimedOutError,
    from_quire_error,
    invalid_request,
)
from quire_engine.server.schemas.chat import ChatRequest
from quire_engine.server.schemas.completions import CompletionRequest


def refuse(body: bytes) -> ApiError:
    with pytest.raises((msgspec.MsgspecError, UnicodeError, RecursionError)) as caught:
        msgspec.json.decode(body, type=CompletionRequest)
    return invalid_request(caught.value, CompletionRequest)  # type: ignore[arg-type]


def test_a_refused_value_is_quoted_in_its_beginning_only() -> None:
    body = b'{"messages": [{"role": "%s"}], "model": "m"}' % (b"x" * 100_000)
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(body, type=ChatRequest)
    error = invalid_request(caught.value, ChatRequest)

    assert error.param == "messages[0].role"
    assert error.message.startswith("messages[0].role: Invalid enum value 'xxx")
    assert len(error.message) < 500
    assert error.message.endswith("it may be 'assistant', 'developer', 'system', 'tool', 'user'.")


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        (b'{"prompt": "p"}', "model", "model: required."),
        (b'{"model": "m", "prompt": 1}', "prompt", "prompt: Expected `str | array`, got `int`"),
        (
            b'{"model": "m", "prompt": "p", "stream_options": {"include_usage": 1}}',
            "stream_options.include_usage",
            "stream_options.include_usage: Expected `bool | null`, got `int`",
        ),
        (b'{"model": "m", "prompt": [[1, true]]}', "prompt[0][1]", "Expected `int`, got `bool`"),
        (
            b'{"model": "m", "prompt": "p", "response_format": {"type": "xml"}}',
            "response_format.type",
            "it may be 'json_object', 'json_schema', 'text'",
        ),
        (
            b'{"model": "m", "prompt": "p", "early_stopping": "soon"}',
            "early_stopping",
            "it may be 'never'",
        ),
        (b"[]", None, "Expected `object`, got `array`"),
        (b"{", None, "not valid JSON"),
        (b'{"model": "\xff"}', None, "not valid UTF-8"),
        (b'{"x":' * 5000, None, "nested too deeply"),
    ],
)
def test_the_parameter_at_fault_is_named(body: bytes, param: str | None, message: str) -> None:
    error = refuse(body)

    assert error.status == 400
    assert error.param == param
    assert message in error.message


def test_the_body_is_openais() -> None:
    error = ApiError(404, "No such model.", param="model", code="model_not_found")

    assert json.loads(error.body()) == {
        "error": {
            "message": "No such model.",
            "type": "NotFoundError",
            "param": "model",
            "code": "model_not_found",
        }
    }
    assert error.headers() == {}


@pytest.mark.parametrize(("seconds", "least", "most"), [(0.01, 1, 1.2), (5, 5, 6), (900, 60, 60)])
def test_retry_times_are_bounded_and_spread(seconds: float, least: float, most: float) -> None:
    for _ in range(50):
        headers = ApiError(429, "Later.", retry_after_seconds=seconds).headers()
        milliseconds = int(headers["retry-after-ms"])
        assert 1000 * least <= milliseconds <= 1000 * most
        assert int(headers["retry-after"]) == -(-milliseconds // 1000)


def test_the_engines_errors_have_their_status() -> None:
    refused = from_quire_error(RequestError("bad", parameter="stop"))
    assert (refused.status, refused.param, refused.code) == (400, "stop", None)
    too_long = from_quire_error(PromptTooLongError("long", parameter="prompt"))
    assert (too_long.status, too_long.code) == (400, "context_length_exceeded")
    dead = from_quire_error(EngineDeadError("gone"))
    assert (dead.status, "retry-after" in dead.headers()) == (503, True)
    assert from_quire_error(RequestTimedOutError("slow")).status == 504
    assert from_quire_error(ModelError("odd")).status == 500
