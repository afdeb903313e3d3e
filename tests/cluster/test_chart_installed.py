"""Releases of the chart on a real API server: admission of pods, rights, one beside another.

There are no nodes, so pods stay Pending; the operator is a process with the release's own account
and flags.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from hack.cluster.cluster import Cluster
from hack.cluster.kubeconfig import write_kubeconfig
from quire_operator.resource.crd import NAME
from tests.api.servers import wait_until
from tests.cluster.helm import Body, Helm, flags_of
from tests.cluster.operators import RunningOperator
from tests.cluster.services import apply, service

NAMESPACE, OTHER = "chart-here", "chart-there"
TEAM_A, TEAM_B = "chart-team-a", "chart-team-b"
PLACES = (NAMESPACE, OTHER, TEAM_A, TEAM_B)
_SECONDS = 120
ONLY_A, ONLY_B = f"--set=namespaces={{{TEAM_A}}}", f"--set=namespaces={{{TEAM_B}}}"
_KIND_IS_THERE = "--set=crds.enabled=false"


@pytest.fixture(scope="module")
def cluster(api_cluster: Cluster) -> Iterator[Cluster]:
    """With namespaces that ask for restricted pods."""
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    for name in PLACES:
        metadata = {"name": name, "labels": label}
        api_cluster.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    yield api_cluster
    api_cluster.api.call("delete", f"crd/{NAME}", "--timeout=110s")
    api_cluster.api.call("delete", "namespace", *PLACES, "--wait=false")  # nobody else's names


@pytest.fixture
def helm(cluster: Cluster, helm_program: Path, tmp_path: Path) -> Iterator[Helm]:
    """Helm as the cluster's administrator; what it installed is taken out again, but the kind."""
    helm = Helm(helm_program, tmp_path, cluster.kubeconfig, NAMESPACE)
    yield helm
    for release in json.loads(helm.call("list", "--all-namespaces", "--output=json")):
        helm.uninstall(release["name"], release["namespace"])
    # Helm waits for Deployments, not for their pods: the next test would take these for its own
    wait_until(lambda: not (_pods(cluster, "operator") or _pods(cluster, "gateway")), _SECONDS)
    cluster.api.call("delete", "qis", "--all", "--all-namespaces", "--timeout=110s")


def test_pods_of_a_release_are_admitted_where_only_restricted_ones_are(
    cluster: Cluster, helm: Helm
) -> None:
    said = helm.install("--set=gateway.replicas=3")
    assert "kubectl apply -f manifests/samples/smollm2-cpu.yaml" in said

    wait_until(lambda: len(_pods(cluster, "operator")) == 2, seconds=_SECONDS)
    wait_until(lambda: len(_pods(cluster, "gateway")) == 3, seconds=_SECONDS)


def test_gateways_keep_their_number_when_an_autoscaler_takes_over_and_gives_back(
    cluster: Cluster, helm: Helm
) -> None:
    def number() -> int:
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/quire-gateway"
        return int(cluster.api.get(path)["spec"]["replicas"])

    scaled = "--set=gateway.autoscaling.enabled=true"
    helm.install("--set=gateway.replicas=5")
    assert number() == 5
    helm.install(scaled)
    assert number() == 5
    # as an autoscaler does it
    here = f"--namespace={NAMESPACE}"
    cluster.api.call("scale", "deployment/quire-gateway", "--replicas=7", here)
    helm.install(scaled, "--set=gateway.drainSeconds=60")
    assert number() == 7
    said = helm.refusal("--set=gateway.replicas=3")
    assert "conflict" in said
    helm.install("--set=gateway.replicas=3", "--force-conflicts")
    assert number() == 3


def test_uninstalling_keeps_the_kind_and_its_services_and_says_so(
    cluster: Cluster, helm: Helm
) -> None:
    helm.install()
    _establish(cluster)
    assert apply(cluster, service("chat", TEAM_A)).returncode == 0

    said = helm.uninstall()

    assert "kept due to the resource policy" in said
    assert NAME in said
    assert cluster.api.run("get", "qis/chat", f"--namespace={TEAM_A}").returncode == 0
    helm.install()  # it is the same release's
    assert cluster.api.run("get", "qis/chat", f"--namespace={TEAM_A}").returncode == 0


def test_the_operator_of_a_release_has_the_rights_that_it_needs(
    cluster: Cluster, helm: Helm, tmp_path: Path
) -> None:
    helm.install(ONLY_A)
    _establish(cluster)
    wait_until(lambda: len(_pods(cluster, "gateway")) == 2, seconds=_SECONDS)
    first, _ = _pods(cluster, "gateway")
    _make_ready(cluster, first, "10.1.2.3")
    stranger = _copy(first, TEAM_A)
    cluster.api.apply(stranger)
    _make_ready(cluster, stranger, "10.6.6.6")
    user = f"system:serviceaccount:{NAMESPACE}:quire-operator"
    server = f"https://127.0.0.1:{cluster.config.ports.api}"
    kubeconfig = write_kubeconfig(tmp_path / "operator", cluster.authority, server, user)
    manifest = helm.call("get", "manifest", "quire", f"--namespace={NAMESPACE}")
    flags = flags_of(list(filter(None, yaml.safe_load_all(manifest))), "operator")

    with RunningOperator(kubeconfig, tmp_path / "operator.log", *flags):
        assert apply(cluster, service("chat", TEAM_A)).returncode == 0
        wait_until(lambda: _addresses(cluster, "chat", TEAM_A) == ["10.1.2.3"], seconds=_SECONDS)
        deployment = ("get", "deployment/chat-l4", f"--namespace={TEAM_A}")
        wait_until(lambda: cluster.api.run(*deployment).returncode == 0, seconds=_SECONDS)
    assert "forbidden" not in (tmp_path / "operator.log").read_text()
    cluster.api.call("delete", "pod/stranger", f"--namespace={TEAM_A}", "--timeout=60s")


def test_two_releases_live_beside_each_other_in_namespaces_of_their_own(
    cluster: Cluster, helm: Helm
) -> None:
    helm.install(ONLY_A)

    said = helm.refusal(ONLY_B, namespace=OTHER)
    assert f"belongs to the release {NAMESPACE}/quire" in said
    assert "--set crds.enabled=false" in said
    said = helm.refusal(_KIND_IS_THERE, namespace=OTHER)
    assert "two would work against each other" in said
    said = helm.refusal(_KIND_IS_THERE, f"--set=namespaces={{{TEAM_A},{TEAM_B}}}", namespace=OTHER)
    assert f"the operator {NAMESPACE}/quire-operator serves namespace {TEAM_A} already" in said
    said = helm.refusal(_KIND_IS_THERE, ONLY_B, release="second")
    assert f"namespace {NAMESPACE} has an installation of quire already" in said

    helm.install(_KIND_IS_THERE, ONLY_B, namespace=OTHER)
    assert _role(cluster, TEAM_A, "quire-operator") == _role(cluster, TEAM_B, "quire-operator")
    helm.uninstall(namespace=OTHER)
    assert _role(cluster, TEAM_B, "quire-operator") is None
    assert _role(cluster, TEAM_A, "quire-operator") is not None


@pytest.mark.parametrize(
    ("value", "kind"), [("podMonitors", "PodMonitor"), ("prometheusRule", "PrometheusRule")]
)
def test_kinds_that_the_cluster_lacks_are_told_before_anything_is_installed(
    cluster: Cluster, helm: Helm, value: str, kind: str
) -> None:
    said = helm.refusal(f"--set={value}.enabled=true")
    assert f"{value}.enabled needs the kind {kind}, which this cluster lacks" in said
    assert "docs/howto/monitoring.md" in said
    assert _pods(cluster, "operator") == []


def test_roles_of_the_cluster_let_people_see_and_change_services(
    cluster: Cluster, helm: Helm
) -> None:
    helm.install()
    _establish(cluster)
    for role in ("view", "edit"):
        name = ("create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}er")
        cluster.api.call(*name, f"--namespace={TEAM_A}")

    def may(user: str, verb: str, part: str = "") -> bool:
        question = ("auth", "can-i", verb, "inferenceservices", f"--subresource={part}")
        where = (f"--namespace={TEAM_A}", f"--as={user}")
        return cluster.api.run(*question, *where).stdout.strip() == "yes"

    wait_until(lambda: may("editer", "patch", "scale"), seconds=_SECONDS)
    wait_until(lambda: may("viewer", "list"), seconds=_SECONDS)
    assert may("editer", "create")
    assert not may("viewer", "create")
    assert not may("editer", "patch", "status")


def _establish(cluster: Cluster) -> None:
    cluster.api.wait_established(f"crd/{NAME}")


def _pods(cluster: Cluster, role: str) -> list[Body]:
    selector = f"labelSelector=serving.quire.dev%2Frole%3D{role}"
    found = cluster.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods?{selector}") or {"items": []}
    items: list[Body] = found["items"]
    return items


def _copy(pod: Body, namespace: str) -> Body:
    """A pod that looks the same, somewhere else."""
    metadata = {
        "namespace": namespace,
        "name": "stranger",
        "labels": pod["metadata"]["labels"],
    }
    spec = {
        name: value
        for name, value in pod["spec"].items()
        if name in ("containers", "securityContext", "volumes")
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _make_ready(cluster: Cluster, pod: Body, address: str) -> None:
    """Say of a pod what a node would."""
    status = {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    metadata = pod["metadata"]
    which = (f"pod/{metadata['name']}", f"--namespace={metadata['namespace']}")
    flags = ("--subresource=status", "--type=merge", f"--patch={json.dumps({'status': status})}")
    cluster.api.call("patch", *which, *flags)


def _addresses(cluster: Cluster, name: str, namespace: str) -> list[str]:
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices/{name}-gateway-ipv4"
    found = cluster.api.get(path) or {}
    return [address for one in found.get("endpoints") or [] for address in one["addresses"]]


def _role(cluster: Cluster, namespace: str, name: str) -> list[Body] | None:
    found = cluster.api.get(
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles/{name}"
    )
    if not found:
        return None
    rules: list[Body] = found["rules"]
    return rules
