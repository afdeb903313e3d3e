"""TLS at the gateway: from applications in the cluster, and from Envoy, which people ask.

    a pod ── TLS ──────────────────┐
    OpenAI's client ── Envoy ── TLS ┴─ gateway x 2 ── engines

Installed by the chart with a Secret, signed by an authority of the test's own.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.chart.values import CHART
from hack.cluster.certificates import Authority, KeyPair
from hack.cluster.cluster import Cluster
from hack.cluster.ingress import TLS_PORT
from tests.api.servers import wait_until
from tests.cluster.helm import Helm
from tests.cluster.operators import SYSTEM
from tests.nodes.clients import Client
from tests.nodes.faults import restarts
from tests.nodes.installing import HOST, PUBLIC, WAIT, make_namespace, remove_kind
from tests.nodes.outside import streamed, way_in
from tests.nodes.seen import pods_of, show, uids
from tests.nodes.services import L4, Body, Service, simulated
from tests.nodes.streams import Load
from tests.nodes.times import Times

SECRET = "gateway-tls"
TLS = f"--values={CHART / 'ci/tls-values.yaml'}"
GATEWAYS_PORT = 8080
QUESTION: Body = {
    "model": "chat",
    "messages": [{"role": "user", "content": "Once upon a time"}],
    "max_tokens": 40,
}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Signs what gateways and Envoy show."""
    made = Authority(tmp_path / "authority")
    made.create()
    return made


@pytest.fixture
def system(bare_cluster: Cluster, helm: Helm) -> Iterator[Cluster]:
    """With a namespace to install into; afterwards nothing of it is left."""
    make_namespace(bare_cluster, SYSTEM)
    yield bare_cluster
    helm.uninstall()
    remove_kind(bare_cluster)
    bare_cluster.api.call("delete", "namespace", SYSTEM, "--timeout=110s")


def test_who_asks_by_tls_is_answered_and_a_new_certificate_needs_no_restart(
    system: Cluster,
    helm: Helm,
    authority: Authority,
    restricted: str,
    times: Times,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hosts = (f"*.{restricted}.svc.cluster.local", f"quire-gateway.{SYSTEM}.svc")
    old, new = (authority.issue(name, name, hosts=hosts) for name in ("old", "new"))
    put(system, SYSTEM, SECRET, old)
    helm.install(*WAIT, TLS)
    assert "Succeeded" in helm.call("test", "quire", f"--namespace={SYSTEM}", "--timeout=110s")

    service = Service(system, restricted)
    auto = {"mode": "Auto", "minReplicas": 1}
    service.apply(simulated(L4), access={"public": True}, scaling=auto)
    service.wait_for("Ready", "True")
    service.wait_for("ScalingActive", "True", "Active")  # the operator has heard of its traffic
    url = service.status()["url"]
    assert url == service.url.replace("http:", "https:")
    client = Client(system, restricted, [HOST], authority.own.certificate)
    wait_until(lambda: client.ask(f"{url}/models").status == 200)
    assert client.ask(f"{url}/chat/completions", QUESTION).status == 200
    assert client.ask(f"https://quire-gateway.{SYSTEM}.svc/v1/models").status == 200
    gateways = pods_of(system, "gateway")
    places = [(pod["status"]["podIP"], GATEWAYS_PORT) for pod in gateways]
    assert "CERTIFICATE_VERIFY_FAILED" in client.ask("https://{}:{}".format(*places[0])).text

    service.apply(simulated(L4), scaling=auto, **PUBLIC)
    assert streamed(system, HOST, "chat")
    assert shown(client, places) == {old.certificate.read_text()}
    with Load(way_in(system, HOST), QUESTION) as load:
        put(system, SYSTEM, SECRET, new)
        with times.of("a new certificate, until all gateways show it"):
            fresh = {new.certificate.read_text()}
            service.wait(lambda: shown(client, places) == fresh, "all show the new certificate")
        load.wait_for_more()
    assert client.ask(f"{url}/chat/completions", QUESTION).status == 200
    show(capsys, load.table("the gateways' certificate is another one"))
    show(capsys, times.table())
    assert load.failures == []
    assert uids(pods_of(system, "gateway")) == uids(gateways)
    assert not any(map(restarts, pods_of(system, "gateway")))

    # at the Ingress as well: its own certificate for who asks, and the gateway's behind it
    put(system, restricted, "models-tls", authority.issue("public", "public", hosts=[HOST]))
    ingress = PUBLIC["ingress"] | {"tlsSecretName": "models-tls"}
    service.apply(simulated(L4), scaling=auto, access={"public": True}, ingress=ingress)
    public = f"https://{HOST}:{TLS_PORT}/v1"
    wait_until(lambda: client.ask(f"{public}/models").status == 200)
    assert client.ask(f"{public}/chat/completions", QUESTION).status == 200
    service.wait(lambda: service.status().get("url") == f"https://{HOST}/v1", "its address is so")


def test_an_upgrade_turns_tls_on_and_off_again(
    system: Cluster,
    helm: Helm,
    authority: Authority,
    restricted: str,
    times: Times,
    capsys: pytest.CaptureFixture[str],
) -> None:
    helm.install(*WAIT)
    service = Service(system, restricted)
    service.apply(simulated(L4), **PUBLIC)
    service.wait_for("Ready", "True")
    assert streamed(system, HOST, "chat")
    engines = uids(service.pods())
    put(system, SYSTEM, SECRET, authority.issue("one", "one", hosts=["gateway.example"]))

    for way, flag in (("on", TLS), ("off", "--reset-values")):
        old = uids(pods_of(system, "gateway"))
        with Load(way_in(system, HOST), QUESTION, num_streams=3) as load:
            with times.of(f"TLS at the gateway turned {way} by helm upgrade --wait"):
                helm.install(*WAIT, flag)
            with times.of(f"TLS {way}: then, until the last old gateway has ended"):
                wait_until_gone(system, old)
        with times.of(f"TLS {way}: then, until a streamed answer"):
            assert streamed(system, HOST, "chat")
        show(capsys, load.table(f"TLS at the gateway is turned {way}"))
        assert load.failures == load.cut == []
        here = f"/api/v1/namespaces/{restricted}/services/chat"
        ports = {one["name"]: one["port"] for one in system.api.get(here)["spec"]["ports"]}
        assert ports == ({"https": 443} if way == "on" else {"http": 80})
    show(capsys, times.table())
    assert uids(service.pods()) == engines


def put(cluster: Cluster, namespace: str, name: str, pair: KeyPair) -> None:
    """Have a Secret with this certificate, in place of one that there is."""
    here = f"--namespace={namespace}"
    files = (f"--cert={pair.certificate}", f"--key={pair.key}")
    made = ("create", "secret", "tls", name, here, *files, "--dry-run=client", "--output=yaml")
    cluster.api.apply_text(cluster.api.call(*made))


def wait_until_gone(cluster: Cluster, gateways: set[str]) -> None:
    """Wait until these have ended their answers."""
    wait_until(lambda: not gateways & uids(pods_of(cluster, "gateway")))


def shown(client: Client, places: list[tuple[str, int]]) -> set[str]:
    """The certificates that gateways show."""
    return set(client.certificates(*places))
