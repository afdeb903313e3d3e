"""The store: what has been seen, trimmed, and by service."""

from typing import Any

from quire_operator.cluster.store import Store, mark_of


def pod(name: str, *, service: str = "chat", **metadata: Any) -> Any:
    return {
        "metadata": {
            "namespace": "ns",
            "name": name,
            "labels": {"serving.quire.dev/service": service},
            "managedFields": ["much"],
            "resourceVersion": "7",
            **metadata,
        },
        "spec": {"nodeName": "n", "containers": ["much"]},
        "status": {"phase": "Running", "podIP": "10.0.0.1"},
    }


def test_only_what_is_kept_counts_as_a_change() -> None:
    store = Store()
    assert store.put("Pod", pod("a"))
    assert not store.put("Pod", pod("a", resourceVersion="8", managedFields=["more"]))
    odd = pod("a")
    assert not store.put("Pod", odd | {"status": odd["status"] | {"qosClass": "Odd"}})
    assert store.put("Pod", pod("a", deletionTimestamp="now"))

    kept = store.get("Pod", ("ns", "a"))
    assert kept is not None
    assert "managedFields" not in kept["metadata"]
    assert "containers" not in kept["spec"]


def test_parts_are_found_by_their_service_until_they_are_dropped() -> None:
    store = Store()
    for name in ("a", "b"):
        store.put("Pod", pod(name))
    store.put("Pod", pod("c", service="other"))

    assert {one["metadata"]["name"] for one in store.parts("Pod", ("ns", "chat"))} == {"a", "b"}
    assert store.drop("Pod", ("ns", "a"))
    assert not store.drop("Pod", ("ns", "a"))
    assert [one["metadata"]["name"] for one in store.parts("Pod", ("ns", "chat"))] == ["b"]
    store.drop("Pod", ("ns", "b"))
    assert store.parts("Pod", ("ns", "chat")) == []


def test_what_lost_its_label_is_no_part_any_more() -> None:
    store = Store()
    store.put("Pod", pod("a"))
    store.put("Pod", pod("a", labels={"serving.quire.dev/service": "other"}))

    assert store.parts("Pod", ("ns", "chat")) == []
    assert len(store.parts("Pod", ("ns", "other"))) == 1


def test_heartbeats_of_nodes_are_no_change() -> None:
    def node(beat: str, ready: str = "True") -> dict[str, Any]:
        condition = {"type": "Ready", "status": ready, "lastHeartbeatTime": beat}
        return {
            "metadata": {"name": "n", "resourceVersion": beat, "creationTimestamp": "t"},
            "status": {"conditions": [condition], "allocatable": {"nvidia.com/gpu": "1"}},
        }

    store = Store()
    assert store.put("Node", node("1"))
    assert not store.put("Node", node("2"))
    assert store.put("Node", node("3", ready="False"))


def test_a_mark_changes_with_what_an_object_should_be() -> None:
    metadata = {"name": "d", "generation": 3, "resourceVersion": "9", "labels": {"a": "b"}}
    mark = mark_of({"metadata": metadata})

    unchanged: list[dict[str, Any]] = [
        {"resourceVersion": "10"},
        {"annotations": {"deployment.kubernetes.io/revision": "2"}},
        {"ownerReferences": []},
    ]
    for same in unchanged:
        assert mark_of({"metadata": metadata | same}) == mark
    changed: list[dict[str, Any]] = [
        {"generation": 4},
        {"labels": {"a": "c"}},
        {"labels": None},
        {"annotations": {"serving.quire.dev/pod-inputs": "x"}},
        {"ownerReferences": [{"uid": "u"}]},
    ]
    for other in changed:
        assert mark_of({"metadata": metadata | other}) != mark
    without = {"name": "c", "resourceVersion": "9"}
    assert mark_of({"metadata": without}) != mark_of(
        {"metadata": without | {"resourceVersion": "1"}}
    )
