"""Traces as a collector gets them."""

from collections.abc import Iterator

import pytest

from quire_engine.errors import ConfigError
from quire_engine.server.tracing import open_tracing
from tests.api.otlp_receiver import OtlpReceiver, Span
from tests.api.servers import MODEL, SIMULATED, RunningServer, start, wait_until

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
CANARY = "CaNaRy-7f3a"
TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
QUICK = {"OTEL_BSP_SCHEDULE_DELAY": "50"}
STEPS = ("--simulated-step-seconds", "0.005")


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as listening:
        yield listening


@pytest.fixture(scope="module")
def traced(receiver: OtlpReceiver) -> Iterator[RunningServer]:
    flags = (*SIMULATED, *STEPS, "--otlp-endpoint", receiver.url)
    with RunningServer(*flags, env=QUICK) as running:
        yield running


def ask(server: RunningServer, receiver: OtlpReceiver, **headers: str) -> tuple[Span, list[Span]]:
    """One chat; its span and the spans below it."""
    before = len(receiver.spans)
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": CANARY}],
        "max_tokens": 20,
        "ignore_eos": True,
        "temperature": 0.5,
        "top_p": 0.25,
    }
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    assert server.post(CHAT, body, headers=named).status_code == 200
    wait_until(lambda: len(receiver.spans) >= before + 4)
    spans = receiver.spans[before:]
    [root] = [span for span in spans if span.name == f"chat {MODEL}"]
    return root, [span for span in spans if span is not root]


def test_a_request_is_a_span_with_its_phases_below(
    traced: RunningServer, receiver: OtlpReceiver
) -> None:
    root, phases = ask(traced, receiver, x_request_id="my-request")

    assert receiver.paths == {"/v1/traces"}
    assert receiver.resources[0]["service.name"] == "quire"
    assert root.raw.kind == 2  # SERVER
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": MODEL,
        "gen_ai.request.max_tokens": 20,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.25,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.response.finish_reasons": ["length"],
        "http.request.method": "POST",
        "http.route": CHAT,
        "http.response.status_code": 200,
        "quire.request.id": "my-request",
    }
    assert expected.items() <= root.attributes.items()
    assert root.attributes["gen_ai.usage.input_tokens"] > len(CANARY)
    assert sorted(phase.name for phase in phases) == ["decode", "prefill", "queue"]
    for phase in phases:
        assert phase.raw.parent_span_id == root.raw.span_id
        assert phase.raw.trace_id == root.raw.trace_id


def test_phases_follow_each_other_within_the_request(
    traced: RunningServer, receiver: OtlpReceiver
) -> None:
    root, phases = ask(traced, receiver)
    queue, prefill, decode = sorted(phases, key=lambda span: span.raw.start_time_unix_nano)

    assert [queue.name, prefill.name, decode.name] == ["queue", "prefill", "decode"]
    assert root.raw.start_time_unix_nano <= queue.raw.start_time_unix_nano
    assert queue.raw.end_time_unix_nano == prefill.raw.start_time_unix_nano
    assert prefill.raw.end_time_unix_nano == decode.raw.start_time_unix_nano
    assert decode.raw.end_time_unix_nano <= root.raw.end_time_unix_nano
    assert prefill.seconds >= 0.005
    assert decode.seconds >= 19 * 0.005


def test_the_callers_trace_goes_on(traced: RunningServer, receiver: OtlpReceiver) -> None:
    root, _ = ask(traced, receiver, traceparent=f"00-{TRACE_ID}-{PARENT_ID}-01")

    assert root.raw.trace_id.hex() == TRACE_ID
    assert root.raw.parent_span_id.hex() == PARENT_ID


def test_what_the_caller_does_not_sample_is_not_sent(
    traced: RunningServer, receiver: OtlpReceiver
) -> None:
    body = {"model": MODEL, "prompt": "x", "max_tokens": 1}
    unsampled = {"traceparent": f"00-{TRACE_ID[::-1]}-{PARENT_ID}-00"}
    assert traced.post(COMPLETIONS, body, headers=unsampled).status_code == 200
    ask(traced, receiver)

    assert TRACE_ID[::-1] not in {span.raw.trace_id.hex() for span in receiver.spans}


def test_a_malformed_parent_begins_a_new_trace(
    traced: RunningServer, receiver: OtlpReceiver
) -> None:
    root, _ = ask(traced, receiver, traceparent=CANARY)

    assert root.raw.parent_span_id == b""


def test_refused_requests_are_traced_as_errors_and_probes_are_not(
    traced: RunningServer, receiver: OtlpReceiver
) -> None:
    traced.get("/readyz")
    traced.get("/v1/models")
    refused = {"model": CANARY, "prompt": CANARY}
    assert traced.post(COMPLETIONS, refused, headers={"x-request-id": "wrong"}).status_code == 404
    wait_until(lambda: any(s.attributes.get("quire.request.id") == "wrong" for s in receiver.spans))
    [span] = [s for s in receiver.spans if s.attributes.get("quire.request.id") == "wrong"]

    assert span.name == f"text_completion {MODEL}"
    assert span.attributes["error.type"] == "404"
    routes = {s.attributes.get("http.route") for s in receiver.spans}
    assert routes <= {None, CHAT, COMPLETIONS}


def test_no_span_says_what_a_client_said(traced: RunningServer, receiver: OtlpReceiver) -> None:
    ask(traced, receiver)

    assert CANARY.encode() not in receiver.bytes


def test_the_last_spans_are_sent_before_the_server_ends(receiver: OtlpReceiver) -> None:
    """By the standard variables, and with the default delay of seconds between batches."""
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_SERVICE_NAME": "by-name"}
    with RunningServer(*SIMULATED, *STEPS, "--drain-grace-seconds", "0", env=env) as server:
        body = {"model": MODEL, "prompt": "x", "max_tokens": 2}
        headers = {"x-request-id": "last-words"}
        assert server.post(COMPLETIONS, body, headers=headers).status_code == 200
        server.stop()
        assert server.process.wait(timeout=60) == 0

    assert "last-words" in {span.attributes.get("quire.request.id") for span in receiver.spans}
    assert "by-name" in {resource["service.name"] for resource in receiver.resources}


def test_a_collector_that_is_gone_changes_nothing() -> None:
    with OtlpReceiver() as gone:
        pass
    flags = (*SIMULATED, *STEPS, "--drain-grace-seconds", "0", "--otlp-endpoint", gone.url)
    with RunningServer(*flags, env=QUICK) as server:
        body = {"model": MODEL, "prompt": "x", "max_tokens": 2}
        for _ in range(5):
            assert server.post(COMPLETIONS, body).status_code == 200
        server.stop()
        assert server.process.wait(timeout=60) == 0


def test_an_endpoint_that_is_no_address_is_refused() -> None:
    process = start(*SIMULATED, "--otlp-endpoint", "collector:4318")
    assert process.wait(timeout=60) == 2
    assert process.stdout is not None
    process.stdout.close()
    with pytest.raises(ConfigError, match="OTLP over HTTP"):
        open_tracing("collector:4318", {}, model_name="m")


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_without_a_wish_nothing_is_traced(environment: dict[str, str]) -> None:
    assert open_tracing(None, environment, model_name="m") is None
