"""`quire doctor`, and `quire top` through a cluster, on a real API server.

There are no nodes: pods and nodes are objects whose status the tests write, and a gateway is a
process of this machine at an address that the API server's proxy reaches.
"""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from hack.cluster.certificates import Authority
from hack.cluster.cluster import Cluster
from hack.cluster.kubeconfig import write_kubeconfig
from quire_operator.resource.crd import NAME, crd
from tests.api.gateways import RunningGateway
from tests.api.gateways import service as routed
from tests.api.servers import SIMULATED, RunningServer, wait_until
from tests.cluster.operators import SYSTEM, RunningOperator, install, uninstall
from tests.cluster.services import apply, service
from tests.cluster.written_objects import OPERATOR, kind_of_routes, node, pod, warning

Body = dict[str, Any]

_SECONDS = 120
_OTHER = "another-system"


def _quire(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "quire_local.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)


def _examine(kubeconfig: Path, status: int = 1) -> dict[str, list[Body]]:
    """Findings by what was checked."""
    ran = _quire("doctor", "--only=cluster", "--json", "--kubeconfig", kubeconfig)
    assert ran.returncode == status, (ran.stdout, ran.stderr)
    found: dict[str, list[Body]] = {}
    for one in json.loads(ran.stdout)["findings"]:
        found.setdefault(one["check"], []).append(one)
        assert one["fix"] or one["level"] == "ok", "what is wrong comes with a way to mend it"
    return found


def _levels(findings: list[Body]) -> set[str]:
    return {one["level"] for one in findings}


def _words(findings: list[Body]) -> str:
    return "\n".join(f"{one['says']} -> {one['fix']}" for one in findings)


@pytest.fixture(scope="module")
def bare(api_cluster: Cluster) -> Cluster:
    """Without anything of quire's."""
    return api_cluster


@pytest.fixture(scope="module")
def installed(bare: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """With the kind, and an operator that leads; its pod is an object alone."""
    kubeconfig = install(bare)
    log = tmp_path_factory.mktemp("doctor") / "operator.log"
    with RunningOperator(kubeconfig, log):
        pod(bare, "operator", socket.gethostname())
        yield bare
    uninstall(bare)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path / "authority")
    made.create()
    return made


def test_a_cluster_that_does_not_answer_is_one_finding(tmp_path: Path, bare: Cluster) -> None:
    path = write_kubeconfig(tmp_path / "config", bare.authority, "https://127.0.0.1:1", "nobody")
    found = _examine(path)
    assert found.keys() == {"api server"}
    assert "https://127.0.0.1:1 does not answer" in _words(found["api server"])
    assert "kubectl config get-contexts" in _words(found["api server"])


def test_a_kubeconfig_that_is_not_there_is_said(tmp_path: Path) -> None:
    found = _examine(tmp_path / "none")
    assert "set KUBECONFIG" in _words(found["api server"])


def test_a_bare_cluster_is_told_what_to_install(bare: Cluster) -> None:
    found = _examine(bare.kubeconfig)
    assert _levels(found["api server"]) == {"ok"}
    # the chart brings the kind, and refuses one that was applied before it
    assert "# without Helm: kubectl apply --server-side" in _words(found["kind"])
    for component in ("kind", "operator", "gateway"):
        assert _levels(found[component]) == {"fail"}
        assert "helm install quire charts/quire" in _words(found[component])
    assert _levels(found["nodes"]) == {"fail"}
    assert _levels(found["ingress"]) == _levels(found["monitoring"]) == {"ok"}


def test_an_older_kind_is_told_from_this_one(installed: Cluster) -> None:
    assert _levels(_examine(installed.kubeconfig)["kind"]) == {"ok"}
    older = deepcopy(crd())
    root = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del root["properties"]["status"]["properties"]["lastScalingDecision"]
    installed.api.call("replace", "-f", "-", stdin=json.dumps(older | _version(installed)))
    found = _examine(installed.kubeconfig)["kind"]
    assert "older than this quire: it lacks status.lastScalingDecision" in _words(found)
    installed.api.call("replace", "-f", "-", stdin=json.dumps(crd() | _version(installed)))


def test_who_may_not_list_services_is_not_told_that_there_are_none(
    tmp_path: Path, installed: Cluster
) -> None:
    server = f"https://127.0.0.1:{installed.config.ports.api}"
    path = write_kubeconfig(tmp_path / "config", installed.authority, server, "nobody")
    found = _examine(path, status=0)
    assert _levels(found["services"]) == {"warn"}
    assert "not checked: " in _words(found["services"])
    assert "none yet" not in _words(found["services"])


def test_the_operator_that_leads_and_has_its_rights_is_well(installed: Cluster) -> None:
    found = _examine(installed.kubeconfig)
    assert _levels(found["operator"]) == _levels(found["rights"]) == {"ok"}
    assert _levels(found["leader"]) == {"ok"}, _words(found["leader"])


def test_a_right_that_is_missing_is_named(installed: Cluster) -> None:
    role = json.loads(installed.api.call("get", "clusterrole", OPERATOR, "--output=json"))
    cut = deepcopy(role)
    cut["rules"] = [one for one in cut["rules"] if "deployments" not in one["resources"]]
    installed.api.apply(_applied(cut))
    try:
        wait_until(lambda: _has(installed, "rights", "may not get deployments.apps"), _SECONDS)
    finally:
        installed.api.apply(_applied(role))


def test_two_operators_that_serve_the_same_are_said_to(installed: Cluster) -> None:
    installed.api.call("create", "namespace", _OTHER)
    installed.api.call("create", "serviceaccount", OPERATOR, f"--namespace={_OTHER}")
    pod(installed, "operator", "second", namespace=_OTHER)
    words = _words(_examine(installed.kubeconfig)["operator"])
    assert f"those of namespaces {_OTHER} and {SYSTEM} both serve all namespaces" in words
    assert f"helm uninstall quire --namespace {SYSTEM}" in words
    installed.api.call("delete", "pod/second", f"--namespace={_OTHER}", "--now")
    pod(installed, "operator", "second", namespace=_OTHER, args=["--namespaces=team-a,team-b"])
    words = _words(_examine(installed.kubeconfig)["operator"])
    assert f"those of namespaces {_OTHER} and {SYSTEM} both serve team-a, team-b" in words
    installed.api.call("delete", "namespace", _OTHER, "--timeout=110s")


def test_pods_that_do_not_start_are_told_in_their_own_words(installed: Cluster) -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    pod(installed, "gateway", "stuck", waiting=waiting)
    found = _examine(installed.kubeconfig)
    assert "stuck is not ready: ImagePullBackOff: no such image" in _words(found["gateway"])
    assert "describe pod stuck" in _words(found["gateway"])
    assert "registry.example/gateway:1 cannot be pulled" in _words(found["images"])
    installed.api.call("delete", "pod/stuck", f"--namespace={SYSTEM}", "--now")


def test_a_pod_that_crashes_is_told_with_what_it_said_last(installed: Cluster) -> None:
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off"}
    said = "usage: ...\nerror: unrecognized arguments: --no-such\n"
    pod(installed, "gateway", "crashing", waiting=waiting, said=said)
    words = _words(_examine(installed.kubeconfig)["gateway"])
    assert "back-off; it said last: error: unrecognized arguments: --no-such" in words
    installed.api.call("delete", "pod/crashing", f"--namespace={SYSTEM}", "--now")


def test_a_pod_that_says_nothing_itself_is_told_by_its_last_warning(installed: Cluster) -> None:
    pod(installed, "gateway", "mounting", waiting={"reason": "ContainerCreating"})
    words = _words(_examine(installed.kubeconfig)["gateway"])
    assert "mounting is not ready: it does not say why" in words
    for second, message in ((1, "too early"), (2, 'secret "quire-root" not found')):
        warning(installed, "mounting", message, f"2026-01-01T00:00:0{second}Z")
    words = _words(_examine(installed.kubeconfig)["gateway"])
    assert 'mounting is not ready: secret "quire-root" not found' in words
    installed.api.call("delete", "pod/mounting", f"--namespace={SYSTEM}", "--now")


def test_nodes_with_gpus_need_a_label_and_a_plugin(installed: Cluster) -> None:
    product = {"nvidia.com/gpu.product": "NVIDIA-L4"}
    node(installed, "well", labels=product, gpus=2)
    node(installed, "unlabelled", gpus=1)
    node(installed, "shared", labels={"nvidia.com/gpu.product": "NVIDIA-L4-SHARED"}, gpus=4)
    node(installed, "new", labels={"nvidia.com/gpu.product": "NVIDIA-X900"}, gpus=1)
    node(installed, "without-plugin", labels=product)
    asks = [{"name": "h100", "products": ["NVIDIA-H100-80GB-HBM3"]}]
    assert apply(installed, service("wants-h100", accelerators=asks)).returncode == 0
    words = _words(_examine(installed.kubeconfig)["gpus"])
    assert "2 NVIDIA-L4" in words
    assert "NVIDIA-L4: quire knows no" not in words
    for name, about in (
        ("NVIDIA-X900", " -> set accelerators[].costPerHour where it is used"),
        ("NVIDIA-L4-SHARED", ", and one that pods share in turns -> set accelerators[]."),
    ):
        assert f"{name}: quire knows no price, memory and speed of such a GPU{about}" in words
    assert "so that all who share fit" in words
    assert "kubectl label node unlabelled nvidia.com/gpu.product=" in words
    assert "without-plugin has the label nvidia.com/gpu.product and gives out no" in words
    assert "default/wants-h100 asks for NVIDIA-H100-80GB-HBM3, which no node has" in words
    installed.api.call("delete", "node", "well", "unlabelled", "shared", "new", "without-plugin")
    installed.api.call("delete", "qis/wants-h100")


def test_a_class_of_ingresses_that_is_not_there_is_said_with_the_patch(installed: Cluster) -> None:
    ways_in = {"host": "chat.example", "className": "nginx"}
    access = {"public": True}
    body = service("wants-nginx", ingress=ways_in, access=access)
    assert apply(installed, body).returncode == 0
    found = _examine(installed.kubeconfig)["ingress"]
    assert "no ingress class" in _words(found)
    assert _levels(found) == {"warn"}
    kind = {"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass"}
    spec = {"controller": "projectcontour.io/contour"}
    installed.api.apply(kind | {"metadata": {"name": "contour"}, "spec": spec})
    words = _words(_examine(installed.kubeconfig)["ingress"])
    [patch] = [line.partition("--patch ")[2] for line in words.splitlines() if "--patch" in line]
    flags = ("--type=merge", f"--patch={patch.strip(chr(39))}")
    installed.api.call("patch", "qis", "wants-nginx", *flags)  # as it says
    words = _words(_examine(installed.kubeconfig)["ingress"])
    assert "asks for the class" not in words
    installed.api.call("delete", "ingressclass/contour")
    installed.api.call("delete", "qis/wants-nginx")


def test_a_certificate_that_is_not_there_is_said_with_the_command(
    installed: Cluster, tmp_path: Path, authority: Authority
) -> None:
    assert "certificates" not in _examine(installed.kubeconfig)
    ways_in: Body = {"host": "chat.example", "tlsSecretName": "chat-tls"}
    body = service("with-tls", ingress=ways_in, access={"public": True})
    assert apply(installed, body).returncode == 0
    found = _examine(installed.kubeconfig)["certificates"]
    assert _levels(found) == {"warn"}
    assert "default/with-tls names the Secret chat-tls for TLS, which is not there" in _words(found)
    pair = authority.issue("chat", "chat", hosts=["chat.example"])
    files = {"tls.crt": pair.certificate, "tls.key": pair.key}
    command = _words(found).partition("kubectl ")[2].split()  # as it says
    installed.api.call(*(_with_path(word, files) for word in command))
    assert _levels(_examine(installed.kubeconfig)["certificates"]) == {"ok"}

    # who may see services and no Secrets is told so
    _allow(installed, "seer", "inferenceservices.serving.quire.dev")
    server = f"https://127.0.0.1:{installed.config.ports.api}"
    path = write_kubeconfig(tmp_path / "config", installed.authority, server, "seer")
    found = _examine(path, status=0)["certificates"]
    assert "not checked: " in _words(found)
    assert 'secrets "chat-tls" is forbidden' in _words(found)

    ways_in["annotations"] = {"cert-manager.io/cluster-issuer": "acme"}
    assert apply(installed, body).returncode == 0
    installed.api.call("delete", "secret/chat-tls")
    found = _examine(installed.kubeconfig)["certificates"]
    assert "kubectl --namespace default describe certificate chat-tls" in _words(found)
    installed.api.call("delete", "qis/with-tls")
    installed.api.call("delete", "clusterrole,clusterrolebinding", "seer")


def _with_path(word: str, files: dict[str, Path]) -> str:
    flag, _, name = word.partition("=")
    return f"{flag}={files[name]}" if name in files else word


def _allow(cluster: Cluster, user: str, resource: str) -> None:
    """Have a user list a kind, and wait until that is so."""
    cluster.api.call("create", "clusterrole", user, "--verb=list", f"--resource={resource}")
    cluster.api.call(
        "create", "clusterrolebinding", user, f"--clusterrole={user}", f"--user={user}"
    )
    may = ("auth", "can-i", "list", resource, "--all-namespaces", f"--as={user}")
    wait_until(lambda: cluster.api.run(*may).returncode == 0, _SECONDS)


def test_a_route_that_no_gateway_takes_is_said(installed: Cluster) -> None:
    access = {"public": True}
    body = service("by-route", ingress={"host": "chat.example"}, access=access)
    assert apply(installed, body).returncode == 0
    installed.api.apply(kind_of_routes())
    name = "crd/httproutes.gateway.networking.k8s.io"
    installed.api.call("wait", "--for=condition=Established", name, "--timeout=60s")
    route = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {
            "namespace": "default",
            "name": "by-route",
            "labels": {"app.kubernetes.io/managed-by": "quire-operator"},
        },
        "spec": {"parentRefs": [{"namespace": "infra", "name": "public"}]},
    }
    installed.api.apply(route)

    def found() -> list[Body]:
        return _examine(installed.kubeconfig)["ingress"]

    assert "default/by-route: is there a Gateway infra/public? -> kubectl" in _words(found())
    assert "no ingress class" not in _words(found())
    for status, level, words in (
        ("False", "warn", "leads nowhere: NotAllowed: not from there"),
        ("True", "ok", "default/by-route is accepted"),
    ):
        said = {"reason": "NotAllowed", "message": "not from there"}
        conditions = [{"type": "Accepted", "status": status, **said}]
        patch = json.dumps({"status": {"parents": [{"conditions": conditions}]}})
        flags = ("--subresource=status", "--type=merge", f"--patch={patch}")
        installed.api.call("patch", "httproutes/by-route", *flags)
        assert _levels(found()) == {level}
        assert words in _words(found())
    installed.api.call("delete", name)
    installed.api.call("delete", "qis/by-route")


def test_who_may_see_little_is_told_what_was_not_checked(
    installed: Cluster, tmp_path: Path
) -> None:
    server = f"https://127.0.0.1:{installed.config.ports.api}"
    path = write_kubeconfig(tmp_path / "config", installed.authority, server, "somebody")
    found = _examine(path, status=0)
    assert "not checked" in _words(found["kind"])
    assert "ask an administrator" in _words(found["nodes"])


def test_a_gateway_is_asked_by_way_of_the_cluster(installed: Cluster, tmp_path: Path) -> None:
    address = _own_address()
    if address is None:
        pytest.skip("this machine has no address but loopback, to which no API server proxies")
    routing, flags = tmp_path / "routing.json", ("--management-host", address)
    with (
        RunningServer(*SIMULATED) as engine,
        RunningGateway(routing, [routed([engine])], *flags) as gateway,
    ):
        url = str(gateway.manage("/healthz").url)
        wait_until(lambda: gateway.num_eligible() == 1, _SECONDS)
        port = int(url.rpartition(":")[2].partition("/")[0])
        pod(installed, "gateway", "here", address=address, port=port)
        found = _examine(installed.kubeconfig)
        assert "here is ready, with metrics" in _words(found["gateway answers"])
        ran = _quire("top", "--once", "--json", "--kubeconfig", installed.kubeconfig)
        assert ran.returncode == 0, ran.stderr
        [shown] = json.loads(ran.stdout)["services"]
        assert shown["replicas"][0]["phase"] == "ready"
    installed.api.call("delete", "pod/here", f"--namespace={SYSTEM}", "--now")
    ran = _quire("top", "--once", "--kubeconfig", installed.kubeconfig)
    assert ran.returncode == 1
    assert "has no ready gateway" in ran.stderr


def _has(cluster: Cluster, check: str, words: str) -> bool:
    return words in _words(_examine(cluster.kubeconfig)[check])


def _version(cluster: Cluster) -> Body:
    """What a replacement of the kind needs besides."""
    found = json.loads(cluster.api.call("get", f"crd/{NAME}", "--output=json"))
    return {"metadata": {"name": NAME, "resourceVersion": found["metadata"]["resourceVersion"]}}


def _applied(role: Body) -> Body:
    return {name: role[name] for name in ("apiVersion", "kind", "rules")} | {
        "metadata": {"name": role["metadata"]["name"]}
    }


def _own_address() -> str | None:
    """An address of this machine that is not loopback's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))  # nothing is sent
        except OSError:
            return None
        address: str = probe.getsockname()[0]
    return None if address.startswith("127.") else address
