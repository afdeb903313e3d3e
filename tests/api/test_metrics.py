"""Every metric has the value that counting gives; dashboards and Prometheus' own checker agree."""

import asyncio
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from quire_engine.protocol import buckets
from quire_engine.protocol import metric_names as names
from tests.api.dashboards import ABSENT, LABELLED, PUBLISHED, series_of
from tests.api.promtool import find_promtool
from tests.api.scraping import check_gauges_are_zero, scrape
from tests.api.servers import MODEL, SIMULATED, RunningServer, wait_until_async

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"

BUCKETS = {
    names.TIME_TO_FIRST_TOKEN: ".001 .005 .01 .02 .04 .06 .08 .1 .25 .5 .75 1 2.5 5 7.5 10 20 40 80"
    " 160 640 2560",
    names.INTER_TOKEN_LATENCY: ".01 .025 .05 .075 .1 .15 .2 .3 .4 .5 .75 1 2.5 5 7.5 10 20 40 80",
}

VLLM_LINT = re.compile(
    r"vllm:\S+ (metric names should not contain ':'"
    r"|non-counter metrics should not have \"_total\" suffix)"
)
"""What Prometheus' checker has against names that are vLLM's, which are kept as they are."""


@pytest.fixture(scope="module")
def counted() -> Iterator[RunningServer]:
    """A server of its own: what the tests count began at nothing."""
    flags = ("--max-num-seqs", "2", "--max-num-batched-tokens", "64", "--max-waiting-requests", "1")
    with RunningServer(*SIMULATED, *flags, "--simulated-step-seconds", "0.005") as running:
        yield running


@pytest.fixture(scope="module")
def page(server: RunningServer) -> set[str]:
    """Names of what is on a page, with their labels and without."""
    server.post(COMPLETIONS, {"model": MODEL, "prompt": "x", "max_tokens": 2})
    found = scrape(server)
    return found.keys() | {key.partition("{")[0] for key in found}


async def test_requests_of_every_ending_are_counted_exactly(
    counted: RunningServer, http: httpx.AsyncClient
) -> None:
    url = counted.url + COMPLETIONS
    body = {"model": MODEL, "prompt": "p" * 100, "max_tokens": 10, "ignore_eos": True}
    for _ in range(2):  # the second finds six blocks of sixteen in the cache
        assert (await http.post(url, json=body)).status_code == 200
    text = (await http.post(url, json=body | {"seed": 1})).json()["choices"][0]["text"]
    stopped = await http.post(url, json=body | {"seed": 1, "stop": text[2:4]})
    assert stopped.json()["choices"][0]["finish_reason"] == "stop"

    long = body | {"max_tokens": 4000, "stream": True, "prompt": "q" * 40}
    async with (
        http.stream("POST", url, json=long),
        http.stream("POST", url, json=long),
    ):
        await wait_until_async(lambda: counted.state().sequences.running == 2)
        waiting = asyncio.create_task(http.post(url, json=body | {"max_tokens": 1}))
        await wait_until_async(lambda: counted.state().sequences.waiting == 1)
        assert (await http.post(url, json=body)).status_code == 429
    assert (await waiting).status_code == 200
    assert (await http.post(url, json=body | {"max_tokens": -1})).status_code == 400
    assert (await http.get(counted.url + "/no/such/route")).status_code == 404
    await asyncio.to_thread(counted.wait_until_idle)
    found = await asyncio.to_thread(scrape, counted)

    def value(name: str, **labels: str) -> float:
        return found[name + "".join(f"{{{key}={text}}}" for key, text in labels.items())]

    for reason, number in (("length", 4), ("stop", 1), ("abort", 2), ("error", 0), ("refused", 1)):
        assert value(names.REQUEST_SUCCESS, finished_reason=reason) == number, reason
    assert value(names.REQUESTS_ABORTED) == 2
    assert value(names.PROMPT_TOKENS) == 5 * 100 + 2 * 40
    assert value(names.PROMPT_TOKENS_CACHED) == 4 * 96 + 32
    assert value(names.PROMPT_TOKENS_BY_SOURCE, source="local_cache_hit") == 4 * 96 + 32
    assert value(names.PROMPT_TOKENS_BY_SOURCE, source="local_compute") == 100 + 4 * 4 + 40 + 8
    assert value(names.CACHED_TOKENS_BY_SOURCE, source="device") == 4 * 96 + 32
    assert value(f"{names.COMPUTED_PROMPT_TOKENS}_sum") == 100 + 4 * 4  # of those that ended well
    assert value(names.PREFIX_CACHE_QUERIES) == 5 * 100 + 2 * 40
    assert value(names.PREFIX_CACHE_HITS) == 4 * 96 + 32
    for name in (names.TIME_TO_FIRST_TOKEN, names.QUEUE_TIME):
        assert value(f"{name}_count") == 7
    ended = (
        *(names.E2E_REQUEST_LATENCY, names.PREFILL_TIME, names.DECODE_TIME, names.INFERENCE_TIME),
        *(names.TIME_PER_OUTPUT_TOKEN, names.REQUEST_PROMPT_TOKENS, names.MAX_GENERATION_TOKENS),
        *(names.REQUEST_GENERATION_TOKENS, names.PARAMS_MAX_TOKENS),
    )
    for name in ended:
        assert value(f"{name}_count") == 5, name
    assert value(f"{names.REQUEST_PROMPT_TOKENS}_sum") == 5 * 100
    assert value(f"{names.PARAMS_MAX_TOKENS}_sum") == 4 * 10 + 1
    generated = value(f"{names.REQUEST_GENERATION_TOKENS}_sum")
    assert 3 * 10 + 1 + 1 <= generated <= 4 * 10 + 1
    assert value(f"{names.MAX_GENERATION_TOKENS}_sum") == generated
    assert value(f"{names.INTER_TOKEN_LATENCY}_count") == value(names.GENERATION_TOKENS) - 7
    assert value(names.ADMISSION_DECISIONS, reason="accepted") == 7
    assert value(names.ADMISSION_DECISIONS, reason="queue_full") == 1
    assert value(names.HTTP_REQUESTS, handler=COMPLETIONS, method="POST", status="2xx") == 7
    assert value(names.HTTP_REQUESTS, handler=COMPLETIONS, method="POST", status="4xx") == 2
    assert value(names.HTTP_REQUESTS, handler="none", method="GET", status="4xx") == 1


def test_what_the_core_counted_fits_together(counted: RunningServer) -> None:
    counted.post(COMPLETIONS, {"model": MODEL, "prompt": "z" * 100, "max_tokens": 3})
    counted.wait_until_idle()
    found = scrape(counted)
    kinds = ("decode", "prefill", "mixed")
    steps = [found[f"{names.STEP_SECONDS}_count{{kind={kind}}}"] for kind in kinds]

    assert found[f"{names.ITERATION_TOKENS}_sum"] == found[names.SCHEDULED_TOKENS]
    assert found[f"{names.ITERATION_TOKENS}_count"] == sum(steps)
    assert sum(steps) <= found[names.STEPS]
    assert all(steps[:2])
    assert found[f"{names.STEP_SECONDS}_sum{{kind=decode}}"] >= steps[0] * 0.005
    held = found[names.BLOCKS_FREED]
    assert held >= 7 * 7  # a prompt of 100 tokens takes seven blocks
    ended = found[f"{names.REQUEST_SUCCESS}{{finished_reason=length}}"]
    errors = [found[f"{names.RESERVATION_ERROR}_count{{direction={d}}}"] for d in ("over", "under")]
    assert ended <= sum(errors) <= ended + 1  # the core has stopped one that ended here
    assert found[names.GRAPH_HITS] == found[names.GRAPH_MISSES] == 0
    check_gauges_are_zero(counted)


def test_phases_add_up_to_the_whole(counted: RunningServer) -> None:
    found = scrape(counted)
    prefill, decode = found[f"{names.PREFILL_TIME}_sum"], found[f"{names.DECODE_TIME}_sum"]

    assert found[f"{names.INFERENCE_TIME}_sum"] == pytest.approx(prefill + decode)
    assert prefill > 5 * 0.005
    assert 0 < decode < found[f"{names.E2E_REQUEST_LATENCY}_sum"]


def test_buckets_are_those_of_vllm(server: RunningServer) -> None:
    families = {f.name: f for f in text_string_to_metric_families(server.get("/metrics").text)}
    for name, expected in BUCKETS.items():
        ends = [s.labels["le"] for s in families[name].samples if s.name.endswith("_bucket")]
        assert ends[-1] == "+Inf"
        assert [float(end) for end in ends[:-1]] == [float(end) for end in expected.split()]
    assert len(buckets.REQUEST_LATENCY) == 21


@pytest.mark.parametrize("dashboard", PUBLISHED)
def test_a_published_dashboard_finds_its_metrics(page: set[str], dashboard: str) -> None:
    wanted = series_of(PUBLISHED[dashboard])

    assert {name for name in wanted - page if why_absent(name) is None} == set()


def why_absent(name: str) -> str | None:
    return next((why for pattern, why in ABSENT.items() if re.fullmatch(pattern, name)), None)


def test_panels_find_the_labels_that_they_name(page: set[str]) -> None:
    assert LABELLED - page == set()


def test_what_is_said_to_be_absent_is_asked_for_and_not_there(page: set[str]) -> None:
    asked = set().union(*map(series_of, PUBLISHED.values()))

    for pattern in ABSENT:
        matching = {name for name in asked if re.fullmatch(pattern, name)}
        assert matching, pattern
        assert matching & page == set()


def test_clients_cannot_make_new_series(server: RunningServer) -> None:
    def count() -> int:
        return len(scrape(server))

    def probe(number: int) -> None:
        httpx.request(f"M{'ABCDEFG'[number % 7]}", f"{server.url}/p{number}?q={number}")
        server.get(f"/v1/models/m{number}")
        body = {"model": f"m{number}", "prompt": "x", "user": f"u{number}"}
        server.post(COMPLETIONS, body, headers={"x-request-id": f"r{number}"})

    probe(0)
    before = count()
    for number in range(1, 20):
        probe(number)

    assert count() == before


def test_prometheus_own_checker_agrees(server: RunningServer) -> None:
    promtool = find_promtool()
    if isinstance(promtool, str):
        pytest.skip(promtool)
    server.post(COMPLETIONS, {"model": MODEL, "prompt": "x", "max_tokens": 2})
    page = server.get("/metrics").text
    own = "".join(line for line in page.splitlines(True) if "vllm:" not in line)

    assert check(promtool, own) == (0, [])
    _, problems = check(promtool, page)
    assert [line for line in problems if not VLLM_LINT.fullmatch(line)] == []


def check(promtool: Path, page: str) -> tuple[int, list[str]]:
    """The checker's exit status, and what it has against the page."""
    done = subprocess.run(
        [promtool, "check", "metrics"], input=page, capture_output=True, text=True, timeout=60
    )
    return done.returncode, (done.stdout + done.stderr).splitlines()
