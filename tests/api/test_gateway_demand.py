"""What the gateway knows of requests when they have ended, and what it says while they wait."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.gateways import (
    FakeEngine,
    FakeEngines,
    FakeRequest,
    RunningGateway,
    answer_ok,
    place,
    service,
)
from tests.api.servers import MODEL, RunningServer, wait_until
from tests.api.test_gateway import (
    COMPLETIONS,
    bearer,
    completion,
    key,
    num_waiting,
)
from tests.unit.gateway.builders import document

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SLO = {"slo_time_to_first_token_seconds": 300.0, "slo_time_per_output_token_seconds": 300.0}


@pytest.fixture
def fakes() -> Iterator[FakeEngines]:
    with FakeEngines() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(
    server: RunningServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    keys = [key("team", tokens_per_minute=1_000_000)]
    folder = tmp_path_factory.mktemp("demand")
    documents = [
        service([server], thresholds=document()["thresholds"] | SLO),
        service([server], name="keys", model_names=["guarded"], api_keys=keys),
    ]
    with RunningGateway(folder / "routing.json", documents, "--log-requests") as running:
        wait_until(lambda: running.num_eligible() == running.num_eligible("keys") == 1)
        yield running


def counted(gateway: RunningGateway, kind: str) -> float:
    """Tokens of the open service, by their kind."""
    name = "quire_gateway_key_tokens_total"
    found = re.findall(
        rf'^{name}{{key="",kind="{kind}",service="default/chat"}} (.*)$',
        gateway.manage("/metrics").text,
        re.MULTILINE,
    )
    return float(found[0]) if found else 0.0


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMPLETIONS, completion()),
        (COMPLETIONS, completion(stream=True)),
        (COMPLETIONS, completion(stream=True, stream_options={"include_usage": True}, n=2)),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "stream": True}),
        ("/v1/responses", {"input": "x", "max_output_tokens": 8, "stream": True}),
        ("/v1/responses", {"input": "x", "max_output_tokens": 8}),
    ],
)
def test_tokens_are_counted_as_the_engine_counts_them_and_clients_see_nothing_of_it(
    gateway: RunningGateway, server: RunningServer, path: str, body: dict[str, Any]
) -> None:
    asked = {"max_tokens": 8} | body | {"model": MODEL, "seed": 1}
    if path == "/v1/responses":
        asked.pop("max_tokens")
    before = [counted(gateway, kind) for kind in ("prompt", "completion")]

    through = gateway.post(path, asked)

    assert through.status_code == 200
    assert "x-quire-usage" not in through.text
    assert "x-quire-usage" not in through.headers
    whole = server.post(path, asked | {"stream": False, "stream_options": None}).json()["usage"]
    names = [("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")]
    wanted = [whole.get(old, whole.get(new)) for old, new in names]
    after = [counted(gateway, kind) for kind in ("prompt", "completion")]
    assert [b - a for a, b in zip(before, after, strict=True)] == wanted
    assert counted(gateway, "estimated") == 0.0


def test_what_was_asked_is_reported_for_whoever_sizes_the_fleet(gateway: RunningGateway) -> None:
    before = gateway.fleet()["demand"]
    gateway.post(COMPLETIONS, completion(stream=True))
    gateway.post(COMPLETIONS, completion(), headers={"x-stainless-retry-count": "1"})
    gateway.post(COMPLETIONS, completion(temperature=-1))
    after = gateway.fleet()["demand"]

    def grown(name: str) -> int:
        return int(after[name]) - int(before[name])

    assert sum(after["arrivals"]) - sum(before["arrivals"]) == 2
    assert len(after["arrivals"]) == len(after["prompt_bounds"]) + 1
    assert grown("num_retries") == 1
    ended = [sum(map(sum, one["ended"])) for one in (before, after)]
    assert ended[1] - ended[0] == 2
    assert grown("output_tokens") == 16
    assert after["first_token"]["met"] - before["first_token"]["met"] == 1
    assert after["output_token"]["met"] - before["output_token"]["met"] == 1
    assert after["first_token"]["missed"] == 0


def test_limits_are_divided_by_the_number_of_gateways_and_given_back(
    server: RunningServer, tmp_path: Path
) -> None:
    keys = [key("requests", requests_per_minute=2), key("tokens", tokens_per_minute=40_000)]
    documents = [service([server], api_keys=keys, num_gateways=2)]
    with RunningGateway(tmp_path / "r.json", documents) as gateway:
        wait_until(lambda: gateway.num_eligible() == 1)

        def ask(name: str, **changes: Any) -> int:
            body = completion(**changes)
            return gateway.post(COMPLETIONS, body, headers=bearer(name)).status_code

        assert gateway.fleet()["num_gateways"] == 2
        assert [ask("requests") for _ in range(2)] == [200, 429]
        # each would use up more than half of the 20,000, and the engine takes none of them
        assert [ask("tokens", prompt="word " * 12_000) for _ in range(2)] == [400, 400]


def test_who_leaves_while_waiting_has_used_up_nothing(tmp_path: Path) -> None:
    with RunningGateway(
        tmp_path / "r.json", [service([], api_keys=[key("team", tokens_per_minute=4000)])]
    ) as gateway:
        body = completion(max_tokens=3000, stream=True)
        for _ in range(2):  # the second would be over the limit, were it not given back
            with httpx.stream(
                "POST", gateway.url + COMPLETIONS, json=body, headers=bearer("team"), timeout=60
            ) as answer:
                assert answer.status_code == 200
                wait_until(lambda: num_waiting(gateway) == 1)
            wait_until(lambda: num_waiting(gateway) == 0)


async def refuse_it(request: FakeRequest) -> None:
    body = b'{"error": {"message": "no", "type": "t", "param": null, "code": "bad"}}'
    head = (
        b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    )
    await request.send(head % len(body) + body)


def test_streams_that_wait_for_a_first_engine_are_kept_awake(
    server: RunningServer, fakes: FakeEngines, tmp_path: Path
) -> None:
    bad = fakes.add(refuse_it)
    promise = document()["thresholds"] | {"slo_time_to_first_token_seconds": 1.0}
    documents = [
        service([], thresholds=promise),  # of engines: not broken while there is none
        service([], name="bad", model_names=["bad"]),
        service([], name="late", model_names=["late"], cold_start_queue_seconds=6.0)
        | {"thresholds": document()["thresholds"] | {"max_queue_seconds": 1.0}},
    ]
    with RunningGateway(tmp_path / "r.json", documents) as gateway, ThreadPoolExecutor(5) as pool:

        def ask(path: str, **changes: Any) -> httpx.Response:
            return gateway.post(path, completion(**changes))

        stream = pool.submit(ask, COMPLETIONS, stream=True)
        whole = pool.submit(ask, COMPLETIONS)
        refused = pool.submit(ask, COMPLETIONS, model="bad", stream=True)
        late = pool.submit(ask, COMPLETIONS, model="late", stream=True)
        late_response = pool.submit(ask, "/v1/responses", model="late", stream=True, input="x")
        for one in (late, late_response):  # a comment comes after 5 seconds, the end after 6
            assert one.result(60).text.startswith(": waiting")
        assert late.result(60).status_code == 200
        lines = late.result(60).text.split("\n\n")
        assert json.loads(lines[-3].removeprefix("data: "))["error"]["code"] == "no_engine"
        assert lines[-2:] == ["data: [DONE]", ""]
        assert "event: error\ndata: " in late_response.result(60).text

        documents[0]["engines"], documents[1]["engines"] = [place(server)], [place(bad)]
        gateway.write(documents)
        assert stream.result(60).text.startswith(": waiting for an engine to start\n\n")
        assert stream.result(60).text.endswith("data: [DONE]\n\n")
        assert '"error"' not in stream.result(60).text
        assert whole.result(60).json()["choices"]
        assert refused.result(60).text.endswith(
            '"code": "bad"}}\n\ndata: [DONE]\n\n',
        )


@pytest.mark.parametrize(
    ("sent", "is_taken"),
    [
        ({"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "a=b"}, True),
        ({"traceparent": f"01-{TRACE}-{SPAN}-00-more"}, True),
        ({}, False),
        ({"traceparent": f"00-{TRACE}-{SPAN}-01-more", "tracestate": "a=b"}, False),
        ({"traceparent": f"ff-{TRACE}-{SPAN}-01"}, False),
        ({"traceparent": f"00-{'0' * 32}-{SPAN}-01"}, False),
        ({"traceparent": "garbage"}, False),
    ],
)
def test_traces_pass_and_are_made_where_there_are_none(
    traced: tuple[RunningGateway, FakeEngine], sent: dict[str, str], is_taken: bool
) -> None:
    gateway, fake = traced
    assert gateway.post(COMPLETIONS, completion(), headers=sent).status_code == 200
    got = fake.requests[-1].headers()
    if is_taken:
        assert {name: got.get(name) for name in sent} == sent
    else:
        assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", got["traceparent"])
        assert TRACE not in got["traceparent"]
        assert "tracestate" not in got


@pytest.fixture(scope="module")
def traced(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[RunningGateway, FakeEngine]]:
    path = tmp_path_factory.mktemp("traced") / "r.json"
    with FakeEngines() as running:
        fake = running.add(answer_ok)
        with RunningGateway(path, [service([fake])]) as gateway:
            wait_until(lambda: gateway.num_eligible() == 1)
            yield gateway, fake


def test_a_line_in_the_log_has_the_documented_fields_and_nothing_that_was_said(
    server: RunningServer, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    flags = ("--log-requests", "--log-format", "json")
    keys = [key("secret-key-of-a-client")]
    documents = [service([server], api_keys=[keys[0] | {"name": "team"}])]
    with RunningGateway(tmp_path / "r.json", documents, *flags, stderr=log) as gateway:
        wait_until(lambda: gateway.num_eligible() == 1)
        said = completion(prompt="a canary in the prompt", stream=True)
        headers = bearer("secret-key-of-a-client") | {"x-request-id": "mine"}
        assert gateway.post(COMPLETIONS, said, headers=headers).status_code == 200
        assert gateway.post(COMPLETIONS, said).status_code == 401
        wait_until(lambda: log.read_text().count('"request_id"') == 2)
    lines = [json.loads(line) for line in log.read_text().splitlines() if '"request_id"' in line]
    table = (
        Path("docs/gateway.md").read_text().partition("| field | what |")[2].partition("\n\n")[0]
    )
    documented = {name for row in table.splitlines() for name in re.findall("`(.*?)`", row)}
    for line in lines:
        assert set(line) - {"time", "level", "process", "logger", "message"} == documented
    served, refused = lines
    assert (served["request_id"], served["service"]) == ("mine", "default/chat")
    assert (served["key"], served["completion_tokens"], served["status"]) == ("team", 8, 200)
    assert (refused["status"], refused["reason"]) == (401, "missing_api_key")
    assert "canary" not in log.read_text()
    assert "secret-key" not in log.read_text()
