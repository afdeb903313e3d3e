"""What the operator may do in a cluster, and that it needs no more."""

import json
from pathlib import Path

import httpx
import pytest

from hack.cluster.cluster import Cluster
from quire_operator import rbac
from tests.api.servers import wait_until
from tests.cluster.operators import LEASE, ROOT, SYSTEM, RunningOperator, install
from tests.cluster.services import Body, get, make, wait_for_status


@pytest.mark.usefixtures("kubeconfig")  # or the kind is missing, too
def test_a_cluster_without_its_namespace_ends_it_with_what_to_do(
    api_cluster: Cluster, log: Path
) -> None:
    operator = RunningOperator(
        api_cluster.kubeconfig, log, "--operator-namespace=nowhere", "--log-format=text"
    )
    try:
        assert operator.process.wait(timeout=120) == 1
    finally:
        operator.kill()

    assert "`kubectl create namespace nowhere`" in log.read_text()
    assert "Traceback" not in log.read_text()


def test_without_rights_it_waits_for_them_and_says_which(
    api_cluster: Cluster, kubeconfig: Path, log: Path
) -> None:
    every = {one["kind"]: one for one in rbac.cluster_wide(SYSTEM, LEASE, ROOT)}
    role, binding = every["ClusterRole"], every["ClusterRoleBinding"]
    api_cluster.api.call("delete", "clusterrolebinding", binding["metadata"]["name"])
    operator = RunningOperator(kubeconfig, log, "--lease-seconds=3", "--log-format=text")
    try:
        wait_until(lambda: 'cannot list resource "inferenceservices"' in log.read_text(), 90)
        # it sees services then, and no nodes
        fewer = [rule for rule in role["rules"] if rule["resources"] != ["nodes"]]
        api_cluster.api.apply(role | {"rules": fewer}, binding)
        wait_until(lambda: 'cannot list resource "nodes"' in log.read_text(), 90)
        assert "manifests/operator-rbac.yaml" in log.read_text()
        assert operator.process.poll() is None
        probes = [f"http://127.0.0.1:{operator.port}/{path}" for path in ("healthz", "readyz")]
        assert [httpx.get(one, timeout=60).status_code for one in probes] == [200, 503]

        api_cluster.api.apply(role)
        operator.wait_until_ready()
    finally:
        operator.kill()
        install(api_cluster)


def test_its_rights_are_those_that_are_listed_and_no_others(
    api_cluster: Cluster, kubeconfig: Path
) -> None:
    own = rbac.own_rules(LEASE, ROOT)
    everyones = _rights(api_cluster, None, "default")

    found = _rights(api_cluster, kubeconfig, "default") - everyones
    assert found == _written_out(rbac.rules() + rbac.node_rules())
    assert not any(verb in ("list", "watch") for verb, _, what, _ in found if what == "secrets")
    in_its_own = _rights(api_cluster, kubeconfig, SYSTEM) - everyones
    assert in_its_own == _written_out(rbac.rules() + rbac.node_rules() + own)


Right = tuple[str, str, str, str]
"""Verb, group, resource, and the name of the only object, if it is for one."""


def _rights(cluster: Cluster, kubeconfig: Path | None, namespace: str) -> set[Right]:
    """What the API server says that somebody may; without a kubeconfig, one that has no rights."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    who = f"--kubeconfig={kubeconfig}" if kubeconfig else "--as=system:serviceaccount:x:nobody"
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    answer = cluster.api.run(who, "create", f"--raw={path}", "-f", "-", stdin=json.dumps(review))
    assert answer.returncode == 0, answer.stderr
    return _written_out(json.loads(answer.stdout)["status"]["resourceRules"])


def _written_out(rules: list[Body]) -> set[Right]:
    return {
        (verb, group, resource, name)
        for rule in rules
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", ("",))
    }


def test_in_single_namespaces_it_needs_no_rights_elsewhere(
    api_cluster: Cluster, kubeconfig: Path, log: Path, namespace: str
) -> None:
    outside = f"{namespace[:30]}-outside"
    api_cluster.api.call("create", "namespace", outside)
    api_cluster.api.call(
        "delete", "clusterrole/quire-operator", "clusterrolebinding/quire-operator"
    )
    try:
        restricted = install(api_cluster, watched=[namespace])
        with RunningOperator(restricted, log, f"--namespaces={namespace}") as operator:
            wait_until(lambda: operator.metric("quire_operator_is_leader") == 1)
            make(api_cluster, outside)
            make(api_cluster, namespace)
            wait_for_status(api_cluster, namespace)
            assert "status" not in get(api_cluster, "qis", outside, "chat")
    finally:
        install(api_cluster)
        api_cluster.api.call("delete", "namespace", outside, "--timeout=120s")
