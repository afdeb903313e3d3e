"""Operators that stop, are replaced, or run side by side."""

import json
import subprocess
from pathlib import Path

import pytest

from hack.cluster.cluster import Cluster
from quire_operator.resource.crd import NAME
from tests.api.servers import wait_until
from tests.cluster.operators import SYSTEM, RunningOperator
from tests.cluster.services import FIXED, PATHS, get, make, tokens, wait_for_status


def test_deleting_works_with_the_operator_stopped(
    api_cluster: Cluster, operator: RunningOperator, namespace: str
) -> None:
    make(api_cluster, namespace)
    wait_for_status(api_cluster, namespace)
    assert operator.stop() == 0

    here = f"--namespace={namespace}"
    api_cluster.api.call("delete", "qis/chat", here, "--timeout=30s")
    wait_until(lambda: get(api_cluster, "deployment", namespace, "chat-l4") is None)
    make(api_cluster, namespace)
    api_cluster.api.call("delete", "namespace", namespace, "--timeout=60s")


def test_two_operators_act_as_one_and_the_second_goes_on_when_the_first_is_killed(
    api_cluster: Cluster, operator: RunningOperator, kubeconfig: Path, log: Path, namespace: str
) -> None:
    wait_until(lambda: operator.metric("quire_operator_is_leader") == 1)
    other_log = log.with_name("other.log")
    with RunningOperator(kubeconfig, other_log, "--lease-seconds=3") as other:
        make(api_cluster, namespace)
        wait_for_status(api_cluster, namespace)
        assert other.metric("quire_operator_is_leader") == 0
        assert other.metric("quire_operator_writes_total") == 0

        operator.kill()
        wait_until(lambda: other.metric("quire_operator_is_leader") == 1)
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
        wait_until(lambda: newer.metric("quire_operator_is_leader") == 1)
        pressure = {"admission": 90}
        make(api_cluster, namespace, memoryPressure=pressure, accelerators=[l4], model=model)
        wait_for_status(api_cluster, namespace)
        after = get(api_cluster, "deployment", namespace, "chat-l4")

    assert after["spec"] == before["spec"]
    # annotations count, too: the seal was taken away, and is there again
    num_writes = 2 if is_unsealed else 0
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + num_writes
    assert after["metadata"]["annotations"].items() >= before["metadata"]["annotations"].items()


def test_bounds_that_move_reach_deployments_though_no_round_of_scaling_is_near(
    api_cluster: Cluster, kubeconfig: Path, log: Path, namespace: str
) -> None:
    make(api_cluster, namespace, replicas=1, scaling={"mode": "Auto"})
    flags = ("--lease-seconds=3", "--engine-image=engine:1", f"--gateway-namespace={SYSTEM}")
    with RunningOperator(kubeconfig, log, *flags):
        wait_for_status(api_cluster, namespace)

    rounds = "quire_operator_scaling_decide_seconds_count"
    with RunningOperator(kubeconfig, log, *flags, "--scale-seconds=3600") as operator:
        wait_until(lambda: f"{rounds} 1.0" in operator.metrics())
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

    wait_until(is_so)


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
        wait_until(lambda: ordered() == 3)
        api_cluster.api.call("scale", "qis/chat", here, "--replicas=1")
        wait_until(lambda: ordered() == 1)


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
        wait_until(lambda: "NameTaken" in degraded("a-older"))
        assert routed("a-older") == ["a-older"]
    with RunningOperator(kubeconfig, log.with_name("another.log"), *flags) as another:
        another.wait_until_ready()
        api_cluster.api.call(
            "annotate", "qis", "--all", f"--namespace={namespace}", "seen=again"
        )  # each is looked at by this one
        wait_until(lambda: "NameTaken" in degraded("a-older"))
        assert "NameTaken" not in degraded("chat")
        assert routed("chat") == ["m"]

        make(api_cluster, namespace, "chat", model=source | {"name": "n"}, **shared)
        wait_until(lambda: routed("a-older") == ["a-older", "m"])


def test_a_new_pod_finds_the_tokens_that_somebody_deleted(
    api_cluster: Cluster, kubeconfig: Path, log: Path, namespace: str
) -> None:
    never = [f"--{name}-seconds=3600" for name in ("poll", "secrets", "resync")]
    here = f"--namespace={namespace}"
    with RunningOperator(kubeconfig, log, "--lease-seconds=3", *never):
        make(api_cluster, namespace)
        wait_for_status(api_cluster, namespace)
        pods = f"/api/v1/namespaces/{namespace}/pods"
        wait_until(lambda: len(api_cluster.api.get(pods)["items"]) == FIXED["replicas"])
        before = tokens(api_cluster, namespace)
        api_cluster.api.call("delete", "secret/chat-internal", here)
        api_cluster.api.call("delete", "pods", "--all", here)
        wait_until(lambda: tokens(api_cluster, namespace) == before)


def test_a_kind_that_is_not_served_for_a_while_leaves_no_operator_that_sees_nothing(
    api_cluster: Cluster, kubeconfig: Path, log: Path, namespace: str
) -> None:
    under = ("unshare", "--map-root-user", "--pid", "--fork", "--kill-child")
    if subprocess.run([*under, "true"], check=False).returncode:
        pytest.skip("this machine gives no namespace of processes, as a container has")
    flags = ("--lease-seconds=300",)  # it outlasts what follows: who ends gives it back
    stubborn = RunningOperator(
        kubeconfig, log, *flags, module="tests.cluster.stubborn_operator", under=under
    )
    with stubborn as operator:
        wait_until(lambda: operator.metric("quire_operator_is_leader") == 1)
        make(api_cluster, namespace)
        wait_for_status(api_cluster, namespace)
        serve(api_cluster, is_served=False)
        # kopf waits for a task that does not end, and its SIGKILL means nothing to process 1
        assert operator.process.wait(timeout=120) == 1
    assert "watch ended: 404" in log.read_text()

    second = log.with_name("second.log")
    later = RunningOperator(kubeconfig, second, *flags, "--log-format=text")  # by the kubelet
    try:
        wait_until(lambda: "waiting: the cluster has no" in second.read_text())
        serve(api_cluster, is_served=True)
        make(api_cluster, namespace, replicas=5)
        wait_for_replicas(api_cluster, namespace, 5)
    finally:
        serve(api_cluster, is_served=True)
        later.kill()


def serve(cluster: Cluster, *, is_served: bool) -> None:
    """Have the API server serve the kind, or not."""
    served = [{"op": "replace", "path": "/spec/versions/0/served", "value": is_served}]
    cluster.api.call("patch", f"crd/{NAME}", "--type=json", f"--patch={json.dumps(served)}")
    path = PATHS["qis"].format("default")
    wait_until(lambda: (cluster.api.get(path) is not None) is is_served)
