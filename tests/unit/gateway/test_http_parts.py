"""Small parts of the way of a request's bytes."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire_gateway.errors import ApiError, SettingsError
from quire_gateway.http.headers import Headers, find, to_client, to_engine, write_head
from quire_gateway.http.request import Request
from quire_gateway.http.sse import MAX_EVENT_BYTES, EventBorder
from quire_gateway.serving.inquiry import (
    DEFAULT_MAX_TOKENS,
    bearer_of,
    host_of,
    read_inquiry,
    request_id_of,
)
from quire_gateway.settings import parse

CHAT = "/v1/chat/completions"


def request(body: object = None, headers: Headers | None = None) -> Request:
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return Request(b"POST", b"/", headers or [], False, True, content)


def inquiry(path: str = CHAT, **fields: Any) -> Any:
    return read_inquiry(path, request({"model": "m"} | fields))


@given(st.lists(st.binary(max_size=30) | st.just(b"\n\n"), max_size=12))
def test_events_are_passed_on_whole_and_nothing_is_lost(pieces: list[bytes]) -> None:
    border, passed = EventBorder(), b""
    for piece in pieces:
        whole = border.whole(piece)
        assert not whole or whole.endswith(b"\n\n")
        passed += whole
    rest = border.rest()
    assert b"\n\n" not in rest
    assert passed + rest == b"".join(pieces)
    assert border.rest() == b""


def test_an_event_without_an_end_is_not_held_back_for_ever() -> None:
    border = EventBorder()
    assert border.whole(b"x" * MAX_EVENT_BYTES) == b""
    assert len(border.whole(b"x")) == MAX_EVENT_BYTES + 1


def test_what_is_for_the_connection_or_the_gateway_alone_does_not_pass() -> None:
    headers = [
        (b"connection", b"close, X-Hop"),
        (b"x-hop", b"1"),
        (b"transfer-encoding", b"chunked"),
        (b"x-quire-anything", b"1"),
        (b"x-forwarded-proto", b"https"),
        (b"sec-fetch-site", b"cross-site"),
        (b"authorization", b"Bearer x"),
        (b"x_quire_salt", b"s"),
        (b"X_Quire-Admit".lower(), b"wait"),
        (b"x_forwarded_for", b"1.2.3.4"),
        (b"x_real_ip", b"1.2.3.4"),
        (b"accept", b"text/event-stream"),
    ]
    assert to_engine(headers) == [(b"accept", b"text/event-stream")]
    answered = [(b"x-quire-state", b"held=1"), (b"connection", b"close"), (b"x-a", b"1")]
    assert to_client(answered) == [(b"x-a", b"1")]
    assert write_head(b"HTTP/1.1 200 OK", [(b"a", b"b")]) == b"HTTP/1.1 200 OK\r\na: b\r\n\r\n"
    assert find([(b"a", b"1"), (b"a", b"2")], b"a") is None


def test_a_request_is_read_for_what_it_will_take() -> None:
    one = inquiry(messages=[{"role": "user", "content": "x" * 4000}], max_tokens=7, n=3, priority=1)
    assert 1000 <= one.num_prompt_tokens <= 1020
    assert (one.max_tokens, one.num_sequences, one.is_background) == (7, 3, True)
    assert inquiry(prompt=[1, 2, 3, 4]).num_prompt_tokens == 5
    assert inquiry().max_tokens == DEFAULT_MAX_TOKENS
    assert inquiry(max_tokens=5, max_completion_tokens=6).max_tokens == 6
    assert inquiry("/v1/embeddings", input="x", max_tokens=5).max_tokens == 1
    assert inquiry().is_background is None


@given(
    st.dictionaries(
        st.sampled_from(["messages", "prompt", "max_tokens", "n", "best_of", "priority", "stream"]),
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    )
)
def test_wrong_types_are_for_the_engine_to_refuse(fields: dict[str, Any]) -> None:
    one = inquiry(**fields)
    assert one.model == "m"
    assert one.max_tokens >= 1
    assert 1 <= one.num_sequences <= 128


@given(st.binary(max_size=60))
def test_any_body_is_read_or_refused(body: bytes) -> None:
    try:
        read_inquiry(CHAT, request(body))
    except ApiError as error:
        assert error.status == 400  # noqa: PT017 - that it is raised is not the point


@pytest.mark.parametrize(
    "headers",
    [
        [(b"x-quire-priority", b"high")],
        [(b"x-quire-priority", b"background")] * 2,
        [(b"x-quire-deadline-ms", b"0")],
        [(b"x-quire-deadline-ms", b"1e3")],
        [(b"x-quire-deadline-ms", b"9" * 17)],
    ],
)
def test_malformed_headers_are_refused(headers: Headers) -> None:
    with pytest.raises(ApiError) as caught:
        read_inquiry(CHAT, request({"model": "m"}, headers))
    assert caught.value.status == 400
    assert caught.value.param == headers[0][0].decode()


def test_deadlines_and_classes_come_from_headers_first() -> None:
    headers = [(b"x-quire-priority", b"interactive"), (b"x-quire-deadline-ms", b"1500")]
    one = read_inquiry(CHAT, request({"model": "m", "priority": 9}, headers))
    assert (one.is_background, one.deadline_seconds) == (False, 1.5)


def test_who_asks_and_for_which_host() -> None:
    def with_header(name: bytes, value: bytes) -> Request:
        return request({}, [(name, value)])

    assert bearer_of(with_header(b"authorization", b"bearer  abc")) == b"abc"
    assert bearer_of(with_header(b"authorization", b"Basic abc")) is None
    assert bearer_of(with_header(b"authorization", b"Bearer ")) is None
    assert host_of(with_header(b"host", b"Models.Example.com:8080")) == "models.example.com"
    assert request_id_of(with_header(b"x-request-id", b"abc-1")) == b"abc-1"
    assert request_id_of(with_header(b"x-request-id", b"a b\x00")) != b"a b\x00"


def test_each_process_has_its_part_of_connections_and_logs_as_it_is_told() -> None:
    settings = parse(["--routing", "r", "--workers", "3", "--log-level", "debug"], {})
    assert settings.connections_each == 3334
    assert settings.observability.log_level == "debug"


def test_settings_come_from_flags_before_variables() -> None:
    variables = {"QUIRE_GATEWAY_PORT": "1", "QUIRE_GATEWAY_LOG_REQUESTS": "true"}
    settings = parse(["--routing", "r", "--port", "2"], variables)
    assert (settings.port, settings.log_requests) == (2, True)
    assert not parse(["--routing", "r", "--no-log-requests"], variables).log_requests


@pytest.mark.parametrize(
    ("argv", "variables"),
    [
        ([], {}),
        (["--routing", "r", "--port", "99999"], {}),
        (["--routing", "r", "--silence-seconds", "nan"], {}),
        (["--routing", "r", "--log-format", "xml"], {}),
        (["--routing", "r", "--log-level", "loud"], {}),
        (["--routing", "r"], {"QUIRE_GATEWAY_PROT": "1"}),
        (["--routing", "r"], {"QUIRE_GATEWAY_PORT": "x"}),
        (["--routing", "r"], {"QUIRE_GATEWAY_LOG_REQUESTS": "maybe"}),
    ],
)
def test_wrong_settings_are_refused(argv: list[str], variables: dict[str, str]) -> None:
    with pytest.raises(SettingsError):
        parse(argv, variables)
