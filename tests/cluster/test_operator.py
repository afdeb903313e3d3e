"""The operator against a real API server and its controllers; there are no nodes."""

import json
from pathlib import Path

from hack.cluster.cluster import Cluster
from tests.api.servers import wait_until
from tests.cluster.operators import RunningOperator
from tests.cluster.services import get, make, reasons, wait_for_status


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
    wait_until(lambda: "WaitingForReplicas" in reasons(api_cluster, namespace))
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

    wait_until(is_right)
    wanted = {
        ("Deployment chat-l4", "changed by others"),
        ("Service chat-engines", "missing"),
        ("ConfigMap chat-live", "changed by others"),
    }
    wait_until(lambda: wanted <= changes(log, namespace))


def test_what_is_not_wanted_any_more_goes_and_what_others_made_stays(
    api_cluster: Cluster, operator: RunningOperator, namespace: str
) -> None:
    two = [
        {"name": "l4", "products": ["NVIDIA-L4"]},
        {"name": "t4", "products": ["Tesla-T4"]},
    ]
    make(api_cluster, namespace, accelerators=two)
    wait_until(lambda: get(api_cluster, "deployment", namespace, "chat-t4") is not None)
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

    wait_until(lambda: get(api_cluster, "deployment", namespace, "chat-t4") is None)
    assert get(api_cluster, "deployment", namespace, "chat-l4") is not None
    assert get(api_cluster, "configmap", namespace, "foreign") is not None


def test_limits_that_move_reach_engines_and_gateways_and_no_pod_begins_anew(
    api_cluster: Cluster, operator: RunningOperator, namespace: str
) -> None:
    make(api_cluster, namespace)
    wait_for_status(api_cluster, namespace)
    wait_until(lambda: len(template_hashes(api_cluster, namespace)) == 1)
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
        wait_until(lambda: operator.metric(looks) > before[0])
        return operator.metric(writes) == before[1]

    wait_until(is_quiet)
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
