"""From a cluster's objects to routing documents."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from quire_gateway.routing.cluster_objects import DocumentReader, Placing
from quire_gateway.routing.document import EnginePlace, RoutingDocument
from tests.unit.gateway.builders import document, routing

ACCELERATORS = [{"name": "l4"}, {"name": "l4-big"}]


def config_map(name: str = "chat", made_at: str = "2026-01-01T00:00:00Z", **changes: Any) -> Any:
    return {
        "metadata": {
            "namespace": "default",
            "name": f"{name}-routing",
            "labels": {"serving.quire.dev/service": name},
            "creationTimestamp": made_at,
        },
        "data": {"routing.json": json.dumps(document(**{"name": name} | changes))},
    }


def keyed(*maps: Any) -> dict[tuple[str, str], Any]:
    return {("default", one["metadata"]["name"]): one for one in maps}


def slice_of(*endpoints: Any, service: str = "chat-engines", **changes: Any) -> dict[str, Any]:
    labels = {"kubernetes.io/service-name": service} | changes.pop("labels", {})
    metadata = {"namespace": "default", "name": changes.pop("name", "s1"), "labels": labels}
    ports = [{"name": "http", "port": 8000}]
    body = {"metadata": metadata, "addressType": "IPv4", "ports": ports, "endpoints": endpoints}
    return body | changes


def endpoint(address: str, pod: str = "", **conditions: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"addresses": [address], "conditions": conditions}
    return found | ({"targetRef": {"name": pod, "uid": pod}} if pod else {})


def placed(*slices: dict[str, Any]) -> RoutingDocument:
    one = routing(engines_service="chat-engines", accelerators=ACCELERATORS)
    (found,) = Placing().place([one], slices)
    return found


@pytest.mark.parametrize(
    "broken",
    [
        {"routing.json": "{"},
        {"routing.json": json.dumps(document(schema_version=0))},
        {"routing.json": json.dumps([document(), document(name="other")])},
        {"routing.json": json.dumps(document(namespace="of-somebody-else"))},
        {"routing.json": json.dumps(document(name="another"))},
        {},
        None,
    ],
)
def test_of_a_broken_document_the_last_good_one_stays(broken: Any) -> None:
    reader, good = DocumentReader(), config_map(model_names=["before"])
    reader.read(keyed(good))
    assert [one.model_names for one in reader.read(keyed(good | {"data": broken}))] == [("before",)]
    assert set(reader.problems) == {("default", "chat-routing")}

    (mended,) = reader.read(keyed(config_map(model_names=["after"])))
    assert mended.model_names == ("after",)
    assert not reader.problems


def test_a_document_that_never_was_good_is_none() -> None:
    reader = DocumentReader()
    assert not reader.read(keyed(config_map() | {"data": {"routing.json": "{"}}))
    assert reader.problems
    assert not reader.read({})
    assert not reader.problems


def test_the_oldest_comes_first() -> None:
    young, old = config_map("a", "2026-02-01T00:00:00Z"), config_map("b", "2026-01-01T00:00:00Z")
    assert [one.name for one in DocumentReader().read(keyed(young, old))] == ["b", "a"]


def test_no_claim_is_older_than_the_object_that_says_it() -> None:
    made = datetime(2026, 2, 1, tzinfo=UTC).timestamp()
    body = config_map(
        made_at="2026-02-01T00:00:00Z",
        model_names=["early", "late", "unsaid"],
        claimed_at={"early": 1.0, "late": made + 5},
    )
    (found,) = DocumentReader().read(keyed(body))

    assert found.claimed_at == {"early": made, "late": made + 5, "unsaid": made}


def test_of_names_that_the_cluster_cuts_the_accelerator_is_known() -> None:
    chat = "c" * 40
    names = ["l4", "l4-big", "accelerator-of-17", "accelerator-with-20a"]
    twins = ["twins-that-look-lika", "twins-that-look-likb"]
    accelerators = [{"name": one} for one in (*names, *twins)]

    def accelerator_of(name: str) -> str:
        pod = f"{chat}-{name}-5d8f7c9b4d-"[:58] + "x7k2p"  # as the API server makes names
        one = routing(name=chat, engines_service="chat-engines", accelerators=accelerators)
        (found,) = Placing().place([one], [slice_of(endpoint("10.0.0.1", pod))])
        return found.engines[0].accelerator

    assert [accelerator_of(one) for one in names] == names
    assert [accelerator_of(one) for one in twins] == ["", ""]


def test_engines_are_those_of_the_service_whatever_their_slice_and_readiness() -> None:
    found = placed(
        slice_of(endpoint("10.0.0.1", "chat-l4-5d-x", ready=True)),
        slice_of(
            endpoint("10.0.0.2", "chat-l4-big-5d-x", ready=False),
            endpoint("10.0.0.3", "x", terminating=True),
            name="s2",
            ports=[{"name": "metrics", "port": 9}, {"name": "http", "port": 8001}],
        ),
        slice_of(endpoint("fd00::1"), name="s3", addressType="IPv6", ports=[]),
        slice_of(endpoint("10.0.0.9"), service="other-engines"),
        slice_of({"addresses": ["host.example"]}, {"addresses": []}, name="s4"),
        slice_of(name="s5", endpoints=None, ports=None),
    )
    assert found.engines == (
        EnginePlace(address="10.0.0.1:8000", accelerator="l4"),
        EnginePlace(address="10.0.0.2:8001", accelerator="l4-big"),
        EnginePlace(address="10.0.0.3:8001", is_leaving=True),
        EnginePlace(address="[fd00::1]:8000"),
    )


def test_an_engine_counts_once() -> None:
    found = placed(
        slice_of(endpoint("10.0.0.1", "a", terminating=True)),
        slice_of(endpoint("10.0.0.1", "a", ready=True), name="s2"),
        slice_of(endpoint("fd00::1", "a", ready=True), name="s3", addressType="IPv6"),
    )
    assert found.engines == (EnginePlace(address="10.0.0.1:8000"),)


def test_gateways_are_those_that_the_operator_lists() -> None:
    listed = {"endpointslice.kubernetes.io/managed-by": "quire-operator"}
    of_the_cluster = {"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}
    gateways = [endpoint(f"10.1.0.{number}", ready=True) for number in range(3)]
    one = slice_of(*gateways, endpoint("10.1.0.9", ready=False), service="chat", labels=listed)
    other = slice_of(*gateways, endpoint("10.1.0.8"), service="chat", labels=of_the_cluster)
    assert placed(one, other).num_gateways == 3
    assert placed().num_gateways == 1


def test_engines_that_a_document_itself_names_are_not_believed_in_a_cluster() -> None:
    (document_,) = Placing().place([routing(engines=[{"address": "10.9.9.9:80"}])], [])
    assert document_.engines == ()


def test_a_service_of_which_nothing_has_changed_stays_the_same_object() -> None:
    placing, reader = Placing(), DocumentReader()
    maps = keyed(*(config_map(name, engines_service=f"{name}-engines") for name in ("a", "b")))
    slices = [slice_of(endpoint("10.0.0.1"), service="a-engines")]
    a, b = placing.place(reader.read(maps), slices)
    assert placing.place(reader.read(maps), list(slices)) == (a, b)
    slices.append(slice_of(endpoint("10.0.0.2"), service="b-engines"))
    again = placing.place(reader.read(maps), slices)
    assert again[0] is a
    assert again[1].engines == (EnginePlace(address="10.0.0.2:8000"),)
    (left,) = placing.place(reader.read(maps)[:1], slices)
    assert left is a
