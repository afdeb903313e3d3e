"""Objects that are not as one expects them spoil no look at others, and count for nothing."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from quire_operator.cluster.api import ClusterApi
from quire_operator.cluster.store import Store
from quire_operator.planner.events import Event
from quire_operator.planner.observed import node_from
from quire_operator.planner.unread import of_failure
from quire_operator.reconciling.event_writer import EventWriter
from quire_operator.reconciling.gateways import gateway_addresses, gateway_pods
from quire_operator.reconciling.observing import engine_pods, observe_replicas
from quire_operator.reconciling.ownership import owner_beside
from tests.unit.control.builders import GATEWAY, L4, NOW, service

SERVICE = service(L4)
KEY = SERVICE.key
OURS = {
    "app.kubernetes.io/managed-by": "quire-operator",
    "serving.quire.dev/service": "chat",
}


@pytest.mark.parametrize(
    ("amount", "number"), [("8", 8), ("1k", 1000), ("2Ki", 2048), ("-1", 0), ("many", 0), ("", 0)]
)
def test_gpus_of_a_node_are_read_as_the_api_server_writes_them(amount: str, number: int) -> None:
    metadata = {"name": "n", "creationTimestamp": "2026-01-01T00:00:00Z"}
    body = {"metadata": metadata, "status": {"allocatable": {"nvidia.com/gpu": amount}}}
    assert node_from(body).num_gpus == number


def _pod(name: str, *owners: dict[str, Any], **more: Any) -> dict[str, Any]:
    labels = {
        "serving.quire.dev/service": "chat",
        "serving.quire.dev/role": "engine",
        "serving.quire.dev/accelerator": "l4",
        "pod-template-hash": "abc",
    }
    metadata = {
        "namespace": "models",
        "name": name,
        "labels": labels,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": list(owners),
    }
    return {"metadata": metadata | more}


def test_only_pods_of_the_services_deployments_are_its_engines() -> None:
    replica_set = {"kind": "ReplicaSet", "name": "chat-l4-abc", "controller": True}
    store = Store()
    store.put("Pod", _pod("ours", replica_set))
    store.put("Pod", _pod("loose"))
    store.put("Pod", _pod("of-another", replica_set | {"name": "other-abc"}))
    store.put("Pod", _pod("of-a-job", replica_set | {"kind": "Job"}))

    assert [pod.name for pod in engine_pods(store, KEY)] == ["ours"]


def test_of_which_accelerator_a_deployment_is_its_name_says() -> None:
    owner = {"kind": "InferenceService", "name": "chat", "uid": SERVICE.uid, "controller": True}
    store = Store()
    for name, label in (("chat-l4", "other"), ("chat-h100", ""), ("copy", "l4"), ("chat-", "l4")):
        labels = OURS | {"serving.quire.dev/accelerator": label}
        metadata = {"namespace": "models", "name": name, "labels": labels}
        body = {"metadata": metadata | {"ownerReferences": [owner]}, "spec": {"replicas": 4}}
        store.put("Deployment", body)

    found = observe_replicas(store, SERVICE).deployments
    assert {name: (one.accelerator, one.replicas) for name, one in found.items()} == {
        "l4": ("l4", 4),
        "h100": ("h100", 4),
    }


def test_gateways_are_in_their_namespace() -> None:
    store = Store()
    status = {"podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]}
    for namespace in ("quire-system", "evil"):
        pod = _pod("g", labels=dict(GATEWAY.selector), namespace=namespace)
        store.put("Pod", pod | {"status": status | {"podIP": f"10.0.0.{len(namespace)}"}})

    assert gateway_addresses(store, GATEWAY) == ("10.0.0.12",)
    assert gateway_addresses(store, None) == ()


def test_a_gateway_that_is_ending_gets_nothing_new_though_it_is_ready() -> None:
    store = Store()
    for name, ending in (("stays", {}), ("goes", {"deletionTimestamp": "2026-01-01T00:01:00Z"})):
        pod = _pod(name, labels=dict(GATEWAY.selector), namespace=GATEWAY.namespace, **ending)
        ready = [{"type": "Ready", "status": "True"}]
        address = f"10.0.0.{len(name)}"
        store.put("Pod", pod | {"status": {"podIP": address, "conditions": ready}})

    assert gateway_addresses(store, GATEWAY) == ("10.0.0.5",)


def _gateway(name: str, address: str, **conditions: str) -> dict[str, Any]:
    """A gateway's pod."""
    pod = _pod(name, labels=dict(GATEWAY.selector), namespace=GATEWAY.namespace)
    said = [{"type": kind, "status": status} for kind, status in conditions.items()]
    return pod | {"status": {"podIP": address, "conditions": said}}


def test_gateways_of_which_all_nodes_are_missed_stay_and_of_which_some_are_go() -> None:
    store = Store()
    for number in (1, 2):
        missed = {"Ready": "False", "ContainersReady": "True"}
        store.put("Pod", _gateway(f"missed-{number}", f"10.0.0.{number}", **missed))
    store.put("Pod", _gateway("starts", "10.0.0.3", Ready="False", ContainersReady="False"))

    assert gateway_addresses(store, GATEWAY) == ("10.0.0.1", "10.0.0.2")
    store.put("Pod", _gateway("missed-2", "10.0.0.2", Ready="True", ContainersReady="True"))
    assert gateway_addresses(store, GATEWAY) == ("10.0.0.2",)


def test_gateways_without_a_label_speak_as_was_said_and_those_that_are_over_do_not_count() -> None:
    store = Store()
    said = {"true": "10.0.0.1", "false": "10.0.0.2", "": "10.0.0.3", "yes": "10.0.0.4"}
    for value, address in said.items():
        pod = _gateway(f"g{address[-1]}", address, Ready="True")
        pod["metadata"]["labels"]["serving.quire.dev/gateway-tls"] = value
        store.put("Pod", pod)
    tls = replace(GATEWAY, is_tls=True)
    found = {kind: pods.taking for kind, pods in gateway_pods(store, tls).items()}
    assert found == {True: ("10.0.0.1", "10.0.0.3", "10.0.0.4"), False: ("10.0.0.2",)}
    assert gateway_addresses(store, tls) == tuple(said.values())

    evicted = _gateway("g2", "10.0.0.2", Ready="False")
    evicted["status"]["phase"] = "Failed"
    evicted["metadata"]["labels"]["serving.quire.dev/gateway-tls"] = "false"
    store.put("Pod", evicted)
    assert gateway_pods(store, tls).keys() == {True}


def _controlled(kind: str, name: str, uid: str, labels: dict[str, str]) -> dict[str, Any]:
    owner = {"kind": kind, "name": name, "uid": uid, "controller": True}
    metadata = {"namespace": "models", "name": "x", "labels": labels, "ownerReferences": [owner]}
    return {"metadata": metadata}


def test_whose_an_object_is() -> None:
    store = Store()
    other = {"namespace": "models", "name": "other", "uid": "u2"}
    store.put("InferenceService", {"metadata": other, "spec": {}})

    def owner(body: dict[str, Any]) -> str | None:
        return owner_beside(body, SERVICE, store)

    assert owner(_controlled("InferenceService", "chat", "u1", {})) is None
    assert owner(_controlled("InferenceService", "other", "u2", OURS)) == "InferenceService other"
    assert owner(_controlled("Deployment", "shop", "u9", OURS)) == "Deployment shop"
    # of one that is gone, ours by its labels alone
    assert owner(_controlled("InferenceService", "chat", "u0", OURS)) is None
    assert owner(_controlled("InferenceService", "chat", "u0", {})) == "somebody else"
    bare = {"metadata": {"namespace": "models", "name": "x"}}
    assert owner(bare) == "somebody else"
    assert owner({"metadata": bare["metadata"] | {"labels": OURS}}) is None


def test_an_error_of_the_operators_own_is_said() -> None:
    said = {one.type: one for one in of_failure(SERVICE, NOW).conditions}
    assert (said["Ready"].status, said["Ready"].reason) == ("False", "InternalError")
    assert "models/chat" in said["Degraded"].message


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_events_of_a_service_are_bounded_and_hold_no_others_back() -> None:
    clock = Clock()
    writer = EventWriter(cast("ClusterApi", None), clock)
    many = [Event("Normal", "Flapping", "it flaps")] * 200
    now = datetime(2026, 1, 1, tzinfo=UTC)

    def num_taken() -> int:
        before = writer.num_unposted
        writer.post(SERVICE, many, now)
        return writer.num_unposted - before

    assert num_taken() == 25
    writer.forget(KEY)  # to delete it and make it anew gives it no more
    assert num_taken() == 0
    clock.now += 121
    assert num_taken() == 2
