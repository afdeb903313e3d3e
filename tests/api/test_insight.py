"""Metrics, state and the OpenAPI document say what is so."""

import re

from quire_engine.protocol import metric_names as names
from tests.api.scraping import check_gauges_are_zero, scrape
from tests.api.servers import MODEL, SIMULATED, RunningServer

COMPLETIONS = "/v1/completions"


def test_counters_are_right_by_counting() -> None:
    with RunningServer(*SIMULATED, "--simulated-step-seconds", "0") as server:
        prompt = "p" * 40
        for num_tokens in (1, 10, 30):
            body = {"model": MODEL, "prompt": prompt, "max_tokens": num_tokens}
            assert server.post(COMPLETIONS, body).status_code == 200
        text = server.post(COMPLETIONS, body).json()["choices"][0]["text"]
        server.post(COMPLETIONS, body | {"stop": text[3:5], "stream": True})
        assert server.post(COMPLETIONS, body | {"max_tokens": 0}).status_code == 400
        server.wait_until_idle()
        counted = scrape(server)

    assert counted[names.PROMPT_TOKENS] == 5 * 40
    assert counted[f"{names.REQUEST_SUCCESS}{{finished_reason=length}}"] == 4
    assert counted[f"{names.REQUEST_SUCCESS}{{finished_reason=stop}}"] == 1
    assert counted[f"{names.REQUEST_SUCCESS}{{finished_reason=error}}"] == 0
    assert counted[f"{names.TIME_TO_FIRST_TOKEN}_count"] == 5
    assert counted[f"{names.E2E_REQUEST_LATENCY}_count"] == 5
    assert counted[f"{names.REQUEST_PROMPT_TOKENS}_sum"] == 5 * 40
    assert counted[f"{names.REQUEST_GENERATION_TOKENS}_count"] == 5
    num_generated = counted[names.GENERATION_TOKENS]
    assert 71 + 5 <= num_generated <= 71 + 30  # of the one that was stopped, all that came
    assert counted[f"{names.INTER_TOKEN_LATENCY}_count"] == num_generated - 5
    assert counted[names.PREFIX_CACHE_QUERIES] >= 5 * 40 - 5
    assert counted[names.PREFIX_CACHE_HITS] == 4 * 32  # two full blocks, all but the first time


def test_gauges_return_to_zero_when_idle(server: RunningServer) -> None:
    server.post(COMPLETIONS, {"model": MODEL, "prompt": "x", "max_tokens": 50})
    state = server.wait_until_idle()
    check_gauges_are_zero(server)
    gauges = scrape(server)

    assert gauges[names.BLOCKS_FREE] == gauges[names.BLOCKS_CAPACITY] == state.blocks.total


def test_every_name_is_on_the_page(server: RunningServer) -> None:
    page = server.get("/metrics").text
    metrics = [
        value
        for name, value in vars(names).items()
        if name.isupper() and not name.endswith("_LABEL")
    ]

    assert len(metrics) > 20
    for metric in metrics:
        assert re.search(rf"^# TYPE {metric} (counter|gauge|histogram)$", page, re.MULTILINE), (
            metric
        )


def test_the_state_says_what_the_engine_is(server: RunningServer) -> None:
    state = server.wait_until_idle()

    assert state.schema_version == 1
    assert state.model_id == MODEL
    assert state.tokens_per_block == 16
    assert state.sequences.slots == 256
    assert not state.is_draining
    assert server.get("/version").json()["version"]


def test_the_openapi_document_describes_the_bodies(server: RunningServer) -> None:
    document = server.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    references = set(re.findall(r'#/components/schemas/(\w+)"', server.get("/openapi.json").text))

    assert references <= set(schemas)
    operation = document["paths"]["/v1/chat/completions"]["post"]
    body = operation["requestBody"]["content"]["application/json"]["schema"]
    assert body == {"$ref": "#/components/schemas/ChatRequest"}
    assert set(schemas["ChatRequest"]["required"]) == {"model", "messages"}
    assert {"400", "404", "413", "429", "503"} <= set(operation["responses"])
    assert {"/state", "/metrics", "/readyz", "/v1/models"} <= set(document["paths"])
