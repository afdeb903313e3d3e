"""Every query of the dashboards, and every alert, asked of a real Prometheus.

It reads a simulated engine, a gateway and the operator as the chart's monitors would have it, while
requests come.
"""

import hashlib
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import count
from urllib.parse import urlsplit

import httpx
import pytest

from hack.chart.values import CHART
from hack.cluster.cluster import Cluster
from hack.observability.alerts import ALERTS
from hack.observability.boards import BOARDS
from hack.observability.panels import Panel, Query
from tests.api.gateways import FakeEngines, FakeRequest, RunningGateway, service
from tests.api.promtool import find_promtool
from tests.api.servers import MODEL, SIMULATED, RunningServer, wait_until
from tests.cluster.helm import Helm
from tests.cluster.operators import RunningOperator, install, uninstall
from tests.cluster.prometheus import Prometheus, scrape_config
from tests.cluster.services import apply
from tests.cluster.services import service as inference_service
from tests.unit.gateway.builders import document

_SECONDS = 120
_LABELS = "__meta_kubernetes_pod_label_serving_quire_dev_"
_KEY = "a-key-of-a-team"
_SHA256 = hashlib.sha256(_KEY.encode()).hexdigest()
SELDOM = {"Looks that failed"}
"""Panels without series while all is well: what they show is made when it first happens."""
PANELS = list(
    {panel.title: panel for board in BOARDS for _, row in board.rows for panel in row}.values()
)


@pytest.fixture(scope="module")
def prometheus(
    api_cluster: Cluster, helm: Helm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    found = find_promtool()
    if isinstance(found, str):
        pytest.skip(found.replace("promtool", "prometheus"))
    folder = tmp_path_factory.mktemp("dashboards")
    kubeconfig = install(api_cluster)
    assert apply(api_cluster, inference_service("chat")).returncode == 0
    with (
        ExitStack() as stack,
        FakeEngines() as fakes,
        RunningServer(*SIMULATED) as engine,
        RunningOperator(kubeconfig, folder / "operator.log", "--resync-seconds=1") as operator,
    ):
        stack.callback(uninstall, api_cluster)
        failing = fakes.add(_hang_up)
        limits = {
            "slo_time_to_first_token_seconds": 60.0,
            "slo_time_per_output_token_seconds": 60.0,
        }
        routed = service(
            [engine, failing],
            thresholds=document()["thresholds"] | limits,
            api_keys=[{"name": "team", "sha256": _SHA256}],
        )
        with RunningGateway(folder / "routing.json", [routed]) as gateway:
            wait_until(lambda: gateway.num_eligible() == 2, seconds=_SECONDS)
            pod = {"pod": "one", "namespace": "quire-system"}
            roles = {
                "engine": {
                    urlsplit(engine.url).netloc: pod
                    | {
                        "__meta_kubernetes_namespace": "default",
                        f"{_LABELS}service": "chat",
                        f"{_LABELS}accelerator": "h100",
                    }
                },
                "gateway": {urlsplit(str(gateway.manage("/healthz").url)).netloc: pod},
                "operator": {f"127.0.0.1:{operator.port}": pod},
            }
            monitors = {
                one["metadata"]["name"].removeprefix("quire-"): one
                for one in helm.objects("--set=podMonitors.enabled=true")
                if one["kind"] == "PodMonitor"
            }
            jobs = [scrape_config(monitors[role], targets) for role, targets in roles.items()]
            rules = CHART / "files" / "alerts.yaml"
            program = found.with_name("prometheus")
            with Prometheus(program, folder, jobs, rules) as running, _Traffic(gateway.url):
                yield running


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_every_query_of_a_panel_finds_data(prometheus: Prometheus, panel: Panel) -> None:
    if panel.title in SELDOM:
        for query in panel.queries:
            prometheus.ask(_asked(query))  # it must be understood
        return
    for query in panel.queries:
        wait_until(partial(_has_data, prometheus, query), seconds=_SECONDS, pause_seconds=0.2)


def test_series_have_the_labels_that_their_legends_name(prometheus: Prometheus) -> None:
    for query in [one for panel in PANELS if panel.title not in SELDOM for one in panel.queries]:
        wait_until(partial(_has_series, prometheus, query), seconds=_SECONDS)
        named = {part.partition("}}")[0] for part in query.legend.split("{{")[1:]}
        for series in prometheus.ask(_asked(query)):
            # of requests that named no known model there is no service
            assert named - {"service"} <= series["metric"].keys(), query


def test_services_are_called_the_same_by_engines_gateway_and_operator(
    prometheus: Prometheus,
) -> None:
    for board in BOARDS:
        wait_until(partial(_is_of, prometheus, board.series, {"default/chat"}), seconds=_SECONDS)


def test_every_alert_is_evaluated_and_none_fires_while_all_is_well(prometheus: Prometheus) -> None:
    wait_until(lambda: {one["health"] for one in prometheus.rules()} == {"ok"}, seconds=_SECONDS)
    found = {one["name"]: one["state"] for one in prometheus.rules()}
    assert found.keys() == {one.name for one in ALERTS}
    assert "firing" not in found.values()


class _Traffic:
    """Requests, one after another, while the block lasts."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_over = False
        self._pool = ThreadPoolExecutor(1)

    def __enter__(self) -> None:
        self._sent = self._pool.submit(self._send)

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._sent.result()
        self._pool.shutdown()

    def _send(self) -> None:
        for number in count():
            if self._is_over:
                return
            # every fifth has no key; every third is one that a library sends again
            headers = {"authorization": f"Bearer {_KEY}"} if number % 5 else {}
            headers |= {"x-stainless-retry-count": "1"} if number % 3 == 0 else {}
            body = {"model": MODEL, "prompt": "Once", "max_tokens": 8, "stream": True}
            httpx.post(f"{self._url}/v1/completions", json=body, headers=headers, timeout=60)


async def _hang_up(request: FakeRequest) -> None:
    request.writer.close()


def _asked(query: Query) -> str:
    """The expression as Grafana sends it, for all services."""
    return query.expression.replace("$service", ".*").replace("$__rate_interval", "1m")


def _has_series(prometheus: Prometheus, query: Query) -> bool:
    return bool(prometheus.ask(_asked(query)))


def _is_of(prometheus: Prometheus, series: str, services: set[str]) -> bool:
    return {one["metric"].get("service") for one in prometheus.ask(series)} == services


def _has_data(prometheus: Prometheus, query: Query) -> bool:
    return any(math.isfinite(float(one["value"][1])) for one in prometheus.ask(_asked(query)))
