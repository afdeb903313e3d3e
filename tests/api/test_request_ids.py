"""Requests have ids that come back, and the log names them."""

import json
from pathlib import Path

import pytest

from tests.api.servers import MODEL, SIMULATED, RunningServer

COMPLETIONS = "/v1/completions"
BODY = {"model": MODEL, "prompt": "Once", "max_tokens": 3}


@pytest.mark.parametrize("path", ["/healthz", "/v1/models", "/no/such/route", "/metrics"])
def test_every_answer_has_an_id(server: RunningServer, path: str) -> None:
    ids = {server.get(path).headers["x-request-id"] for _ in range(3)}

    assert len(ids) == 3
    assert all(len(one) == 32 for one in ids)


@pytest.mark.parametrize("presented", ["abc-123", "a" * 128, "trace:1/2=@x.y_z+"])
def test_an_id_that_is_presented_comes_back(server: RunningServer, presented: str) -> None:
    for stream in (False, True):
        answer = server.post(
            COMPLETIONS, BODY | {"stream": stream}, headers={"x-request-id": presented}
        )
        assert answer.headers.get_list("x-request-id") == [presented]


@pytest.mark.parametrize("presented", ["", "a" * 129, "with space", "tab\there", "semi;colon", '"'])
def test_an_id_that_could_harm_a_log_is_replaced(server: RunningServer, presented: str) -> None:
    answer = server.post(COMPLETIONS, BODY, headers={"x-request-id": presented})

    assert answer.status_code == 200
    assert answer.headers["x-request-id"] != presented
    assert len(answer.headers["x-request-id"]) == 32


def log_of(path: Path, *flags: str) -> list[str]:
    """What a server logs of three requests."""
    with RunningServer(*SIMULATED, "--simulated-step-seconds", "0", *flags, stderr=path) as server:
        server.post(COMPLETIONS, BODY, headers={"x-request-id": "first"})
        server.post(COMPLETIONS, BODY | {"max_tokens": -1}, headers={"x-request-id": "second"})
        server.get("/v1/models/x")
        server.stop()
        server.process.wait(timeout=30)
    return path.read_text().splitlines()


def test_a_request_is_one_line_when_that_is_wanted(tmp_path: Path) -> None:
    lines = log_of(tmp_path / "log", "--log-format", "json", "--log-requests")
    records = [json.loads(line) for line in lines]
    requests = [record for record in records if "route" in record]

    assert [(r["route"], r["status"]) for r in requests] == [
        *((COMPLETIONS, 200), (COMPLETIONS, 400), ("/v1/models/{model_id:path}", 404)),
    ]
    first, second, _ = requests
    assert (first["request_id"], second["request_id"]) == ("first", "second")
    assert (first["prompt_tokens"], first["generated_tokens"]) == (4, 3)
    assert first["finish_reason"] == "length"
    assert 0 <= first["queue_seconds"] <= first["seconds"]
    assert 0 < first["prefill_seconds"] + first["decode_seconds"] <= first["seconds"]


def test_without_that_wish_requests_leave_no_line(tmp_path: Path) -> None:
    lines = log_of(tmp_path / "log")

    assert not [line for line in lines if "first" in line or COMPLETIONS in line]
    assert [line for line in lines if "asked to stop" in line]
