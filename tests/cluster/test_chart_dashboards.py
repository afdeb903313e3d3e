"""Every query of the dashboards, and every alert, asked of a real Prometheus.

It reads simulated engines, a gateway and an operator that scales: see `scene`.
"""

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from hack.cluster.cluster import Cluster
from hack.observability.alerts import ALERTS
from hack.observability.boards import BOARDS
from hack.observability.panels import Panel, Query
from tests.api.promtool import find_promtool
from tests.api.servers import wait_until
from tests.cluster.helm import Helm
from tests.cluster.prometheus import Prometheus, page_job
from tests.cluster.scene import LABELS, RULES, Scene, scene

_SECONDS = 120
SELDOM = {"What stands in the way"}
"""Panels without series while all is well: what they show is made when it first happens."""
_SERIES = {
    "engine": "quire_blocks_capacity",
    "gateway": "quire_gateway_engines",
    "operator": "quire_operator_is_leader",
}
"""One of each role."""
PANELS = list(
    {panel.title: panel for board in BOARDS for _, row in board.rows for panel in row}.values()
)


@pytest.fixture(scope="module")
def running(
    api_cluster: Cluster, helm: Helm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    found = find_promtool()
    if isinstance(found, str):
        pytest.skip(found.replace("promtool", "prometheus"))
    folder = tmp_path_factory.mktemp("dashboards")
    program = found.with_name("prometheus")
    with scene(api_cluster, helm, program, folder, num_clients=2) as running:
        yield running


@pytest.fixture(scope="module")
def prometheus(running: Scene) -> Prometheus:
    return running.prometheus


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


def test_the_pages_own_job_names_services_pods_and_accelerators(
    running: Scene, tmp_path: Path
) -> None:
    ports = {"engine": "http", "operator": "http", "gateway": "management"}
    targets = {
        address: {name: value for name, value in labels.items() if name not in ("pod", "namespace")}
        | {
            f"{LABELS}role": role,
            "__meta_kubernetes_namespace": labels["namespace"],
            "__meta_kubernetes_pod_container_port_name": ports[role],
            "__meta_kubernetes_pod_name": labels["pod"],
        }
        for role, several in running.targets.items()
        for address, labels in several.items()
    }
    found = find_promtool()
    assert isinstance(found, Path)
    program = found.with_name("prometheus")
    with Prometheus(program, tmp_path, [page_job(targets)], RULES) as prometheus:
        for board in BOARDS:
            wait_until(partial(_is_of, prometheus, board.series, {"default/chat"}), _SECONDS)
        for role, several in running.targets.items():
            pods = {labels["pod"] for labels in several.values()}
            wait_until(partial(_has_pods, prometheus, _SERIES[role], pods), _SECONDS)
        engines = prometheus.ask(_SERIES["engine"])
        assert {one["metric"]["accelerator"] for one in engines} == {"l4", "h100"}


def test_every_alert_is_evaluated_and_none_fires_while_all_is_well(prometheus: Prometheus) -> None:
    wait_until(lambda: {one["health"] for one in prometheus.rules()} == {"ok"}, seconds=_SECONDS)
    found = {one["name"]: one["state"] for one in prometheus.rules()}
    assert found.keys() == {one.name for one in ALERTS}
    assert "firing" not in found.values()


def _asked(query: Query) -> str:
    """The expression as Grafana sends it, for all services."""
    return query.expression.replace("$service", ".*").replace("$__rate_interval", "1m")


def _has_series(prometheus: Prometheus, query: Query) -> bool:
    return bool(prometheus.ask(_asked(query)))


def _is_of(prometheus: Prometheus, series: str, services: set[str]) -> bool:
    return {one["metric"].get("service") for one in prometheus.ask(series)} == services


def _has_pods(prometheus: Prometheus, series: str, pods: set[str]) -> bool:
    return {one["metric"].get("pod") for one in prometheus.ask(series)} == pods


def _has_data(prometheus: Prometheus, query: Query) -> bool:
    return any(math.isfinite(float(one["value"][1])) for one in prometheus.ask(_asked(query)))
