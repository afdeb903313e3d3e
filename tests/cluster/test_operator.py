"""The operator against a real API server and its controllers; there are no nodes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.cluster.cluster import Cluster
from quire_operator import rbac
from tests.api.servers import wait_until
from tests.cluster.operators import LEASE, ROOT, SYSTEM, RunningOperator, install, uninstall
from tests.cluster.services import Body, apply, service

FIXED = {"replicas": 2, "scaling": {"mode": "External"}}
PATHS = {
    "deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "service": "/api/v1/namespaces/{}/services",
    "configmap": "/api/v1/namespaces/{}/configmaps",
    "qis": "/apis/serving.quire.dev/v1alpha1/namespaces/{}/inferenceservices",
    "event": "/api/v1/namespaces/{}/events",
    "pdb": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
}


@pytest.fixture(scope="module")
def kubeconfig(api_cluster: Cluster) -> Iterator[Path]:
    yield install(api_cluster)
    uninstall(api_cluster)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "operator.log"


@pytest.fixture
def namespace(api_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own."""
    name = request.node.name.replace("_", "-")[:40].strip("-")
    api_cluster.api.call("create", "namespace", name)
    yield name
    api_cluster.api.call("delete", "namespace", name, "--timeout=120s", "--ignore-not-found")


@pytest.fixture
def operator(kubeconfig: Path, log: Path) -> Iterator[RunningOperator]:
    with RunningOperator(kubeconfig, log, "--lease-seconds=3", "--engine-image=engine:1") as one:
        yield one


def get(cluster: Cluster, kind: str, namespace: str, name: str) -> Any:
    return cluster.api.get(f"{PATHS[kind].format(namespace)}/{name}")


def make(cluster: Cluster, namespace: str, name: str = "chat", **spec: Any) -> None:
    answer = apply(cluster, service(name, namespace, **(FIXED | spec)))
    assert answer.returncode == 0, answer.stderr


def wait_for_status(cluster: Cluster, namespace: str, name: str = "chat") -> Body:
    """The service, once the operator has said all about its newest spec."""

    def is_said() -> bool:
        body = get(cluster, "qis", namespace, name) or {}
        said = body.get("status", {}).get("observedGeneration", 0)
        return bool(said == body.get("metadata", {}).get("generation"))

    wait_until(is_said, seconds=90)
    found: Body = get(cluster, "qis", namespace, name)
    return found


def reasons(cluster: Cluster, namespace: str) -> list[str]:
    """Of the events that the operator wrote."""
    events = cluster.api.get(PATHS["event"].format(namespace))["items"]
    return [one["reason"] for one in events if one["involvedObject"]["kind"] == "InferenceService"]


def changes(log: Path, namespace: str) -> set[tuple[str, str]]:
    """What the operator's log says that it changed there, and why."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    mine = [line for line in lines if line.get("namespace") == namespace]
    assert all(line["service"] == "chat" for line in mine)
    return {(one["what"], one["why"]) for line in mine for one in line.get("changes", ())}


def test_a_service_becomes_objects_and_its_status_tells_of_them(
    api_cluster: Cluster, operator: RunningOperator, log: Path, namespace: str
) -> None:
    make(api_cluster, namespace)
    body = wait_for_status(api_cluster, namespace)
    deployment = get(api_cluster, "deployment", namespace, "chat-l4")

    assert deployment["spec"]["replicas"] == 2
    assert deployment["metadata"]["ownerReferences"][0]["uid"] == body["metadata"]["uid"]
    conditions = {one["type"]: one["status"] for one in body["status"]["conditions"]}
    assert len(conditions) == 8
    assert conditions["Ready"] == "False"
    assert body["status"]["url"] == f"http://chat.{namespace}.svc.cluster.local/v1"
    # kopf is a guest: it leaves nothing behind on what it watches
    assert "finalizers" not in body["metadata"]
    assert not any("kopf" in name for name in body["metadata"].get("annotations", {}))
    wait_until(lambda: "WaitingForReplicas" in reasons(api_cluster, namespace), seconds=60)
    assert ("Deployment chat-l4", "new") in changes(log, namespace)
    assert {why for _, why in changes(log, namespace)} == {"new"}


def test_what_somebody_changes_or_deletes_is_put_right(
    api_cluster: Cluster, operator: RunningOperator, log: Path, namespace: str
) -> None:
    make(api_cluster, namespace)
    wait_for_status(api_cluster, namespace)
    here = f"--namespace={namespace}"
    api_cluster.api.call("scale", "deployment/chat-l4", "--replicas=7", here)
    api_cluster.api.call("delete", "service/chat-engines", here)
    api_cluster.api.call(
        "patch", "configmap/chat-live", here, "--type=merge", '-p={"data":{"config.json":"{}"}}'
    )

    def is_right() -> bool:
        replicas = get(api_cluster, "deployment", namespace, "chat-l4")["spec"]["replicas"]
        live = get(api_cluster, "configmap", namespace, "chat-live")["data"]["config.json"]
        found = get(api_cluster, "service", namespace, "chat-engines")
        return replicas == 2 and live != "{}" and found is not None

    wait_until(is_right, seconds=60)
    wanted = {
        ("Deployment chat-l4", "changed by others"),
        ("Service chat-engines", "missing"),
        ("ConfigMap chat-live", "changed by others"),
    }
    wait_until(lambda: wanted <= changes(log, namespace), seconds=60)


def test_what_is_not_wanted_any_more_goes_and_what_others_made_stays(
    api_cluster: Cluster, operator: RunningOperator, namespace: str
) -> None:
    two = [
        {"name": "l4", "products": ["NVIDIA-L4"]},
        {"name": "t4", "products": ["Tesla-T4"]},
    ]
    make(api_cluster, namespace, accelerators=two)
    wait_until(lambda: get(api_cluster, "deployment", namespace, "chat-t4") is not None, seconds=60)
    foreign = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "foreign",
            "namespace": namespace,
            "labels": {
                "serving.quire.dev/service": "chat",
                "app.kubernetes.io/managed-by": "quire-operator",
            },
        },
    }
    api_cluster.api.apply(foreign)
    make(api_cluster, namespace)

    wait_until(lambda: get(api_cluster, "deployment", namespace, "chat-t4") is None, seconds=60)
    assert get(api_cluster, "deployment", namespace, "chat-l4") is not None
    assert get(api_cluster, "configmap", namespace, "foreign") is not None


def test_deleting_works_with_the_operator_stopped(
    api_cluster: Cluster, operator: RunningOperator, namespace: str
) -> None:
    make(api_cluster, namespace)
    wait_for_status(api_cluster, namespace)
    assert operator.stop() == 0

    here = f"--namespace={namespace}"
    api_cluster.api.call("delete", "qis/chat", here, "--timeout=30s")
    wait_until(lambda: get(api_cluster, "deployment", namespace, "chat-l4") is None, seconds=90)
    make(api_cluster, namespace)
    api_cluster.api.call("delete", "namespace", namespace, "--timeout=60s")


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


def test_two_operators_act_as_one_and_the_second_goes_on_when_the_first_is_killed(
    api_cluster: Cluster, operator: RunningOperator, kubeconfig: Path, log: Path, namespace: str
) -> None:
    wait_until(lambda: operator.metric("quire_operator_is_leader") == 1, seconds=60)
    other_log = log.with_name("other.log")
    with RunningOperator(kubeconfig, other_log, "--lease-seconds=3") as other:
        make(api_cluster, namespace)
        wait_for_status(api_cluster, namespace)
        assert other.metric("quire_operator_is_leader") == 0
        assert other.metric("quire_operator_writes_total") == 0

        operator.kill()
        wait_until(lambda: other.metric("quire_operator_is_leader") == 1, seconds=60)
        make(api_cluster, namespace, replicas=5)
        body = wait_for_status(api_cluster, namespace)
        assert body["status"]["desiredReplicas"] == 5


@pytest.mark.parametrize("is_unsealed", [False, True], ids=["sealed", "of-a-version-without-seals"])
def test_an_upgrade_and_a_restart_of_the_operator_restart_no_engine(
    api_cluster: Cluster,
    operator: RunningOperator,
    kubeconfig: Path,
    log: Path,
    namespace: str,
    *,
    is_unsealed: bool,
) -> None:
    pod = {
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}],
        "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}},
    }
    l4 = {"name": "l4", "products": ["NVIDIA-L4"], "pod": pod}
    model = {"source": "hf://acme/thing", "cache": {"pvc": "models"}}
    make(api_cluster, namespace, accelerators=[l4], model=model)
    wait_for_status(api_cluster, namespace)
    before = get(api_cluster, "deployment", namespace, "chat-l4")
    assert operator.stop() == 0
    if is_unsealed:
        unseal = ("annotate", "deployment/chat-l4", f"--namespace={namespace}")
        api_cluster.api.call(*unseal, "serving.quire.dev/pod-template-seal-")
    with RunningOperator(kubeconfig, log, "--lease-seconds=3", "--engine-image=engine:2") as newer:
        wait_until(lambda: newer.metric("quire_operator_is_leader") == 1, seconds=60)
        pressure = {"admission": 90}
        make(api_cluster, namespace, memoryPressure=pressure, accelerators=[l4], model=model)
        wait_for_status(api_cluster, namespace)
        after = get(api_cluster, "deployment", namespace, "chat-l4")

    assert after["spec"] == before["spec"]
    # annotations count, too: the seal was taken away, and is there again
    num_writes = 2 if is_unsealed else 0
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + num_writes
    assert after["metadata"]["annotations"].items() >= before["metadata"]["annotations"].items()


def test_limits_that_move_reach_engines_and_gateways_and_no_pod_begins_anew(
    api_cluster: Cluster, operator: RunningOperator, namespace: str
) -> None:
    make(api_cluster, namespace)
    wait_for_status(api_cluster, namespace)
    wait_until(lambda: len(template_hashes(api_cluster, namespace)) == 1, seconds=90)
    before = get(api_cluster, "deployment", namespace, "chat-l4")
    hashes = template_hashes(api_cluster, namespace)
    make(api_cluster, namespace, memoryPressure={"target": 40, "background": 50, "admission": 60})
    wait_for_status(api_cluster, namespace)

    live = get(api_cluster, "configmap", namespace, "chat-live")["data"]["config.json"]
    assert json.loads(live)["admission"]["admission_ceiling"] == 0.6
    routed = get(api_cluster, "configmap", namespace, "chat-routing")["data"]["routing.json"]
    assert json.loads(routed)["thresholds"]["admission"] == 0.6
    after = get(api_cluster, "deployment", namespace, "chat-l4")
    assert after["spec"] == before["spec"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert template_hashes(api_cluster, namespace) == hashes


def test_bounds_that_move_reach_deployments_though_no_round_of_scaling_is_near(
    api_cluster: Cluster, kubeconfig: Path, log: Path, namespace: str
) -> None:
    make(api_cluster, namespace, replicas=1, scaling={"mode": "Auto"})
    flags = ("--lease-seconds=3", "--engine-image=engine:1", f"--gateway-namespace={SYSTEM}")
    with RunningOperator(kubeconfig, log, *flags):
        wait_for_status(api_cluster, namespace)

    rounds = "quire_operator_scaling_decide_seconds_count"
    with RunningOperator(kubeconfig, log, *flags, "--scale-seconds=3600") as operator:
        wait_until(lambda: f"{rounds} 1.0" in operator.metrics(), seconds=90)
        for bound in (3, 2):
            scaling = {"mode": "Auto", "minReplicas": bound, "maxReplicas": bound}
            make(api_cluster, namespace, replicas=1, scaling=scaling)
            wait_for_replicas(api_cluster, namespace, bound)
        assert f"{rounds} 1.0" in operator.metrics()


def wait_for_replicas(cluster: Cluster, namespace: str, number: int) -> None:
    """Wait until its Deployment asks for as many."""

    def is_so() -> bool:
        found = get(cluster, "deployment", namespace, "chat-l4")
        return bool(found["spec"]["replicas"] == number)

    wait_until(is_so, seconds=90)


def template_hashes(cluster: Cluster, namespace: str) -> set[str]:
    """Of the pods that its Deployments have ever wanted, as their controller makes them."""
    found = cluster.api.get(f"/apis/apps/v1/namespaces/{namespace}/replicasets")["items"]
    return {one["metadata"]["labels"]["pod-template-hash"] for one in found}


def test_when_nothing_changes_nothing_is_written(
    api_cluster: Cluster, operator: RunningOperator, namespace: str
) -> None:
    make(api_cluster, namespace)
    wait_for_status(api_cluster, namespace)
    looks, writes = "quire_operator_reconcile_seconds_count", "quire_operator_writes_total"

    def is_quiet() -> bool:
        """Looked at again without a write: the look is provoked by something that is kept."""
        before = operator.metric(looks), operator.metric(writes)
        stamp = f"touched={before[0]}"
        api_cluster.api.call(
            "annotate", "--overwrite", "qis/chat", f"--namespace={namespace}", stamp
        )
        wait_until(lambda: operator.metric(looks) > before[0], seconds=60)
        return operator.metric(writes) == before[1]

    wait_until(is_quiet, seconds=90)
    versions = _versions(api_cluster, namespace)
    assert is_quiet()
    assert _versions(api_cluster, namespace) == versions


def _versions(cluster: Cluster, namespace: str) -> dict[str, str]:
    """Versions of all that the operator makes."""
    kinds = "deployments,services,configmaps,secrets,networkpolicies,poddisruptionbudgets"
    selector = "app.kubernetes.io/managed-by=quire-operator"
    text = cluster.api.call("get", kinds, f"--namespace={namespace}", "-l", selector, "-o", "json")
    return {
        f"{one['kind']}/{one['metadata']['name']}": one["metadata"]["resourceVersion"]
        for one in json.loads(text)["items"]
    }


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
            wait_until(lambda: operator.metric("quire_operator_is_leader") == 1, seconds=60)
            make(api_cluster, outside)
            make(api_cluster, namespace)
            wait_for_status(api_cluster, namespace)
            assert "status" not in get(api_cluster, "qis", outside, "chat")
    finally:
        install(api_cluster)
        api_cluster.api.call("delete", "namespace", outside, "--timeout=120s")


@pytest.mark.parametrize("mode", ["External", "Recommend"])
def test_who_leaves_auto_loses_no_replica_until_spec_replicas_is_set(
    api_cluster: Cluster, kubeconfig: Path, log: Path, namespace: str, mode: str
) -> None:
    flags = ("--lease-seconds=3", "--engine-image=engine:1")
    here = f"--namespace={namespace}"

    def ordered() -> int:
        return int(get(api_cluster, "deployment", namespace, "chat-l4")["spec"]["replicas"])

    with RunningOperator(kubeconfig, log, *flags):
        make(api_cluster, namespace, replicas=1, scaling={"minReplicas": 4})
        wait_for_status(api_cluster, namespace)
        assert ordered() == 4
    left = {"spec": {"scaling": {"mode": mode}}}
    api_cluster.api.call(
        "patch", "qis/chat", here, "--type=merge", f"--patch={json.dumps(left)}"
    )  # while no operator looks
    with RunningOperator(kubeconfig, log.with_name("another.log"), *flags):
        body = wait_for_status(api_cluster, namespace)
        assert body["status"]["keptReplicas"]["replicas"] == body["status"]["desiredReplicas"] == 4
        assert ordered() == 4

        api_cluster.api.call("scale", "qis/chat", here, "--replicas=3")
        wait_until(lambda: ordered() == 3, seconds=60)
        api_cluster.api.call("scale", "qis/chat", here, "--replicas=1")
        wait_until(lambda: ordered() == 1, seconds=60)


def test_an_older_service_takes_over_no_name_that_another_has_at_a_host(
    api_cluster: Cluster, kubeconfig: Path, log: Path, namespace: str
) -> None:
    flags = ("--lease-seconds=3", "--engine-image=engine:1")
    source = {"source": "hf://acme/thing@main"}
    shared = {"ingress": {"host": "models.example.com"}, "access": {"public": True}}

    def routed(name: str) -> list[str]:
        found = get(api_cluster, "configmap", namespace, f"{name}-routing")
        names: list[str] = json.loads(found["data"]["routing.json"])["model_names"]
        return names

    def degraded(name: str) -> str:
        said = wait_for_status(api_cluster, namespace, name)["status"]["conditions"]
        worst = next(one for one in said if one["type"] == "Degraded")
        return f"{worst['reason']}: {worst['message']}"

    with RunningOperator(kubeconfig, log, *flags):
        make(api_cluster, namespace, "a-older", model=source)
        wait_for_status(api_cluster, namespace, "a-older")
        make(api_cluster, namespace, "chat", model=source | {"name": "m"}, **shared)
        wait_for_status(api_cluster, namespace, "chat")
        make(api_cluster, namespace, "a-older", model=source | {"aliases": ["m"]}, **shared)
        wait_until(lambda: "NameTaken" in degraded("a-older"), seconds=60)
        assert routed("a-older") == ["a-older"]
    with RunningOperator(kubeconfig, log.with_name("another.log"), *flags) as another:
        another.wait_until_ready()
        api_cluster.api.call(
            "annotate", "qis", "--all", f"--namespace={namespace}", "seen=again"
        )  # each is looked at by this one
        wait_until(lambda: "NameTaken" in degraded("a-older"), seconds=60)
        assert "NameTaken" not in degraded("chat")
        assert routed("chat") == ["m"]

        make(api_cluster, namespace, "chat", model=source | {"name": "n"}, **shared)
        wait_until(lambda: routed("a-older") == ["a-older", "m"], seconds=60)
