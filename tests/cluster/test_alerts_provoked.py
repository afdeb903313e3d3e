"""Every alert fires on a real Prometheus when its cause is made on real processes.

The rules are the chart's, with seconds in the place of minutes.
"""

import datetime as dt
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from hack.cluster.certificates import Authority
from hack.cluster.cluster import Cluster
from hack.observability.alerts import ALERTS
from quire_gateway import rbac as gateway_rbac
from quire_operator.planner.names import MANAGER
from tests.api.gateways import FakeEngines, FakeRequest, RunningGateway, place
from tests.api.promtool import find_promtool
from tests.api.servers import MODEL, SIMULATED, RunningServer, wait_until
from tests.api.test_gateway_tls import put
from tests.cluster.faulty_api import FaultyApi
from tests.cluster.helm import Helm
from tests.cluster.operators import SYSTEM, RunningOperator, install, uninstall
from tests.cluster.prometheus import Prometheus, scrape_config
from tests.cluster.scene import LABELS, RULES
from tests.cluster.services import apply
from tests.cluster.services import service as inference_service
from tests.cluster.test_gateway_routing import Routed
from tests.unit.gateway.builders import document

_SECONDS = 120
_FEW_BLOCKS = ("--max-model-len", "1024", "--max-num-blocks", "64")
_STEPS = ("--simulated-step-seconds", "0.01")


@dataclass(frozen=True, kw_only=True)
class World:
    """What alerts are about."""

    cluster: Cluster
    prometheus: Prometheus
    engine: RunningServer
    gateway: RunningGateway
    operator: RunningOperator
    operators_way: FaultyApi
    gateways_way: FaultyApi
    certificates: "Certificates"

    def ask(self, model: str, *, num_tokens: int = 8, words: int = 1, **headers: str) -> int:
        """One stream; its status."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        body = {
            "model": model,
            "prompt": "Once " * words,
            "max_tokens": num_tokens,
            "ignore_eos": True,
            "stream": True,
        }
        url = f"{self.gateway.url}/v1/completions"
        return httpx.post(url, json=body, headers=names, timeout=_SECONDS).status_code


class Certificates:
    """Of the gateway that follows the cluster."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = Authority(folder / "authority")
        self._authority.create()

    def show(self, days: int) -> tuple[str, ...]:
        """Have it show one that is valid for so long; returns its flags."""
        until = dt.timedelta(days=days)
        pair = self._authority.issue(str(days), "gateway", valid=(-until, until))
        return put(pair, self._folder)


@pytest.fixture(scope="module")
def world(
    api_cluster: Cluster, helm: Helm, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    found = find_promtool()
    if isinstance(found, str):
        pytest.skip(found.replace("promtool", "prometheus"))
    folder = tmp_path_factory.mktemp("alerts")
    install(api_cluster)
    api_cluster.api.apply(*gateway_rbac.objects(SYSTEM))
    assert apply(api_cluster, inference_service("stuck")).returncode == 0
    with ExitStack() as stack:
        stack.callback(uninstall, api_cluster)
        stack.callback(
            api_cluster.api.call, "delete", "clusterroles,clusterrolebindings", gateway_rbac.NAME
        )
        ways = [
            stack.enter_context(_way(api_cluster, account, tmp_path_factory.mktemp(account)))
            for account in (MANAGER, gateway_rbac.NAME)
        ]
        engine = stack.enter_context(RunningServer(*SIMULATED, *_FEW_BLOCKS, *_STEPS))
        failing = stack.enter_context(FakeEngines()).add(_hang_up)
        limits = {"background": 1.0, "admission": 1.0, "slo_time_per_output_token_seconds": 1e-4}
        documents = [
            document(
                model_names=[MODEL],
                engines=[place(engine)],
                thresholds=document()["thresholds"] | limits,
            ),
            document(name="failing", model_names=["failing"], engines=[place(failing)]),
            document(name="empty", model_names=["empty"], engines=[]),
            document(name="poor", model_names=["poor"], engines=[]),
        ]
        gateway = stack.enter_context(RunningGateway(folder / "routing.json", documents))
        certificates = Certificates(folder)
        tls = certificates.show(days=90)
        follower = stack.enter_context(Routed(ways[1].kubeconfig, folder / "follower.log", *tls))
        wait_until(lambda: gateway.num_eligible() == 1, _SECONDS)
        log, flags = folder / "operator.log", ("--resync-seconds=1", "--lease-seconds=3")
        management = f"http://{urlsplit(str(gateway.manage('/healthz').url)).netloc}"
        scales = (f"--gateway-namespace={SYSTEM}", f"--gateway-urls={management}")
        operator = stack.enter_context(RunningOperator(ways[0].kubeconfig, log, *flags, *scales))
        rules = folder / "rules.yaml"
        rules.write_text(_in_seconds(RULES.read_text()))
        jobs = _jobs(helm, engine, {"one": gateway, "two": follower}, operator)
        program = found.with_name("prometheus")
        prometheus = stack.enter_context(Prometheus(program, folder, jobs, rules))
        yield World(
            cluster=api_cluster,
            prometheus=prometheus,
            engine=engine,
            gateway=gateway,
            operator=operator,
            operators_way=ways[0],
            gateways_way=ways[1],
            certificates=certificates,
        )


def _in_seconds(rules: str) -> str:
    """The rules for causes that last seconds; an increase is still over all that was seen."""
    rules = re.sub(r"for: \d+m", "for: 1s", rules)
    return rules.replace("[5m]", "[6s]")


@contextmanager
def _way(cluster: Cluster, account: str, folder: Path) -> Iterator[FaultyApi]:
    user = f"system:serviceaccount:{SYSTEM}:{account}"
    may = ("auth", "can-i", "watch", "configmaps", "--all-namespaces", f"--as={user}")
    wait_until(lambda: cluster.api.run(*may).returncode == 0, _SECONDS)
    server = f"https://127.0.0.1:{cluster.config.ports.api}"
    with FaultyApi(cluster.authority, server, user, folder) as way:
        yield way


def _jobs(
    helm: Helm,
    engine: RunningServer,
    gateways: dict[str, RunningGateway],
    operator: RunningOperator,
) -> list[dict[str, object]]:
    here = {"__meta_kubernetes_namespace": "default", f"{LABELS}service": "chat"}
    targets = {
        "engine": {urlsplit(engine.url).netloc: here | {"pod": "chat-0", "namespace": "default"}},
        "gateway": {
            urlsplit(str(one.manage("/healthz").url)).netloc: {"pod": pod, "namespace": SYSTEM}
            for pod, one in gateways.items()
        },
        "operator": {f"127.0.0.1:{operator.port}": {"pod": "one", "namespace": SYSTEM}},
    }
    monitors = {
        one["metadata"]["name"].removeprefix("quire-"): one
        for one in helm.objects("--set=podMonitors.enabled=true")
        if one["kind"] == "PodMonitor"
    }
    return [scrape_config(monitors[role], several) for role, several in targets.items()]


async def _hang_up(request: FakeRequest) -> None:
    request.writer.close()


@contextmanager
def _again_and_again(ask: Callable[[], object], num_threads: int = 1) -> Iterator[None]:
    is_over = threading.Event()

    def run() -> None:
        while not is_over.wait(0.02):
            ask()

    threads = [threading.Thread(target=run) for _ in range(num_threads)]
    for one in threads:
        one.start()
    try:
        yield
    finally:
        is_over.set()
        for one in threads:
            one.join()


def _somebody_waits_for_an_engine(world: World) -> AbstractContextManager[None]:
    # each gives up after so long, and another one comes
    return _again_and_again(partial(world.ask, "empty", x_quire_deadline_ms="2000"))


def _nobody_waits_long(world: World) -> AbstractContextManager[None]:
    return _again_and_again(partial(world.ask, "empty", x_quire_deadline_ms="10"))


def _engines_hang_up(world: World) -> AbstractContextManager[None]:
    return _again_and_again(partial(world.ask, "failing", x_quire_deadline_ms="2000"))


def _tokens_are_slower_than_promised(world: World) -> AbstractContextManager[None]:
    return _again_and_again(partial(world.ask, MODEL))


@contextmanager
def _background_work_gives_way(world: World) -> Iterator[None]:
    long = partial(world.ask, MODEL, num_tokens=150, words=60, x_quire_priority="background")
    short = partial(world.ask, MODEL, num_tokens=60, words=100)
    with _again_and_again(long, 6), _again_and_again(short, 4):
        yield


@contextmanager
def _a_core_dies(world: World) -> Iterator[None]:
    wait_until(lambda: bool(world.prometheus.ask("quire_core_restarts_total")), _SECONDS)
    os.kill(world.engine.core_pid(), signal.SIGKILL)
    yield
    wait_until(world.engine.is_ready, _SECONDS)


@contextmanager
def _a_document_is_broken(world: World) -> Iterator[None]:
    before = world.gateway.routing.read_text()
    world.gateway.routing.write_text("{")
    yield
    world.gateway.routing.write_text(before)


@contextmanager
def _the_api_server_is_away(world: World) -> Iterator[None]:
    world.gateways_way.go_away()
    yield
    world.gateways_way.come_back()


@contextmanager
def _what_is_written_is_refused(world: World) -> Iterator[None]:
    world.operators_way.refuse(
        lambda method, path: 500 if method == "PATCH" and "deployments" in path else None
    )
    world.cluster.api.call("delete", "deployment/stuck-l4")  # it is to be made anew
    yield
    world.operators_way.be_well()


@contextmanager
def _nobody_pays_for_the_minimum(world: World) -> Iterator[None]:
    scaling = {"minReplicas": 2, "maxCostPerHour": "0.5"}
    poor = inference_service("poor", scaling=scaling)
    poor["spec"]["accelerators"][0]["costPerHour"] = "0.4"
    assert apply(world.cluster, poor).returncode == 0
    yield
    world.cluster.api.call("delete", "qis/poor")


@contextmanager
def _nobody_renews_a_certificate(world: World) -> Iterator[None]:
    world.certificates.show(days=3)
    yield
    world.certificates.show(days=90)


@contextmanager
def _the_operator_ends(world: World) -> Iterator[None]:
    world.operator.stop()
    yield


@contextmanager
def _nothing_more(world: World) -> Iterator[None]:
    yield


CAUSES: dict[str, Callable[[World], AbstractContextManager[None]]] = {
    "QuireNoEngine": _somebody_waits_for_an_engine,
    "QuireServiceNotReady": _nothing_more,  # no node takes the pods of the service
    "QuireScalingHindered": _nobody_pays_for_the_minimum,
    "QuireRequestsRefused": _nobody_waits_long,
    "QuireEnginesFail": _engines_hang_up,
    "QuirePromisesBroken": _tokens_are_slower_than_promised,
    "QuirePreemptions": _background_work_gives_way,
    "QuireEngineRestarts": _a_core_dies,
    "QuireRoutingStale": _a_document_is_broken,
    "QuireGatewayBlind": _the_api_server_is_away,
    "QuireOperatorFails": _what_is_written_is_refused,
    "QuireCertificateExpires": _nobody_renews_a_certificate,
    "QuireNoLeader": _the_operator_ends,
}
"""In the order in which they are made: what the last one ends is needed by others."""
ABOUT = {
    "QuireNoEngine": {"service": "default/empty"},
    "QuireServiceNotReady": {"service": "default/stuck"},
    "QuireScalingHindered": {"service": "default/poor", "code": "Infeasible"},
    "QuireRequestsRefused": {"service": "default/empty"},
    "QuireEnginesFail": {"service": "default/failing"},
    "QuirePromisesBroken": {"service": "default/chat", "promise": "output_token"},
    "QuirePreemptions": {"service": "default/chat"},
    "QuireEngineRestarts": {"service": "default/chat", "pod": "chat-0"},
    "QuireRoutingStale": {},
    "QuireGatewayBlind": {"pod": "two"},
    "QuireOperatorFails": {"service": "default/stuck"},
    "QuireCertificateExpires": {"pod": "two"},
    "QuireNoLeader": {},
}
"""Whom each names."""


def test_every_alert_has_a_cause() -> None:
    assert CAUSES.keys() == ABOUT.keys() == {one.name for one in ALERTS}


@pytest.mark.parametrize("name", CAUSES)
def test_an_alert_fires_of_its_cause_and_names_whom_it_is_about(world: World, name: str) -> None:
    if CAUSES[name] is not _nothing_more:
        # a cause before may have been one of this, too, for as long as rates remember it
        wait_until(lambda: not _fires(world, name), _SECONDS, pause_seconds=0.2)
    with CAUSES[name](world):
        wait_until(lambda: _fires(world, name), _SECONDS, pause_seconds=0.2)


def _fires(world: World, name: str) -> bool:
    [rule] = [one for one in world.prometheus.rules() if one["name"] == name]
    return any(
        one["state"] == "firing" and one["labels"].items() >= ABOUT[name].items()
        for one in rule["alerts"]
    )
