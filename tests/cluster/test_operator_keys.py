"""API keys on a real API server: from a Secret, read by name, to what gateways are told."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.cluster.cluster import Cluster
from quire_gateway.routing.document import RoutingDocument, read_documents
from quire_operator.planner.names import MANAGER
from tests.api.servers import wait_until
from tests.cluster.operators import RunningOperator, install
from tests.cluster.services import PATHS, Body, get, make, wait_for_status

FIRST, SECOND, THIRD = (f"sk-{name}-0123456789" for name in ("first", "second", "third"))
LIMITED = json.dumps({"key": SECOND, "max_priority": "background", "requests_per_minute": 60})
ACCESS = {"apiKeysSecretRef": {"name": "chat-keys"}}
ROLE = "clusterrole/quire-operator"


@pytest.fixture
def operator(kubeconfig: Path, log: Path) -> Iterator[RunningOperator]:
    flags = ("--lease-seconds=3", "--secrets-seconds=0.5", "--poll-seconds=0.5")
    with RunningOperator(kubeconfig, log, *flags) as one:
        yield one


@pytest.fixture
def namespace(api_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own."""
    name = request.node.name.replace("_", "-")[:40].strip("-")
    api_cluster.api.call("create", "namespace", name)
    yield name
    api_cluster.api.call("delete", "namespace", name, "--wait=false")


def put_keys(cluster: Cluster, namespace: str, **entries: str) -> None:
    """Make a Secret of exactly these entries."""
    body: Body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "chat-keys", "namespace": namespace},
        "data": {name: base64.b64encode(text.encode()).decode() for name, text in entries.items()},
    }
    cluster.api.call("delete", "secret/chat-keys", f"-n={namespace}", "--ignore-not-found")
    cluster.api.apply(body)


def document(cluster: Cluster, namespace: str) -> RoutingDocument | None:
    """What gateways are told, as a gateway reads it."""
    body = get(cluster, "configmap", namespace, "chat-routing")
    if body is None:
        return None
    (found,) = read_documents(body["data"]["routing.json"].encode())
    return found


def names(cluster: Cluster, namespace: str) -> list[str]:
    """Names of the keys that gateways are told of."""
    found = document(cluster, namespace)
    return [one.name for one in found.api_keys] if found else []


def degraded(cluster: Cluster, namespace: str) -> tuple[str, str]:
    """Why the service is less than it should be."""
    body = get(cluster, "qis", namespace, "chat")
    conditions = body.get("status", {}).get("conditions", ())
    found: dict[str, Any] = next((one for one in conditions if one["type"] == "Degraded"), {})
    return found.get("reason", ""), found.get("message", "")


def wait_for_reason(cluster: Cluster, namespace: str, reason: str) -> str:
    """The message of the reason, once it is the one."""
    wait_until(lambda: degraded(cluster, namespace)[0] == reason)
    return degraded(cluster, namespace)[1]


def test_keys_reach_gateways_as_hashes_and_follow_their_secret(
    api_cluster: Cluster, operator: RunningOperator, log: Path, namespace: str
) -> None:
    make(api_cluster, namespace, access=ACCESS)
    assert "chat-keys" in wait_for_reason(api_cluster, namespace, "SecretMissing")
    found = document(api_cluster, namespace)
    assert found is not None
    assert not found.is_open  # nobody may ask while there is no key

    put_keys(api_cluster, namespace, first=FIRST, second=LIMITED, third=f"{{{THIRD}")
    words = wait_for_reason(api_cluster, namespace, "ApiKeysInvalid")
    assert "third begins with { and is not valid JSON" in words
    assert names(api_cluster, namespace) == ["first", "second"]

    put_keys(api_cluster, namespace, first=FIRST, third=THIRD)
    wait_until(lambda: names(api_cluster, namespace) == ["first", "third"])
    wait_until(lambda: degraded(api_cluster, namespace)[0] != "ApiKeysInvalid")
    events = api_cluster.api.get(PATHS["event"].format(namespace))
    said = json.dumps([events, get(api_cluster, "qis", namespace, "chat")]) + log.read_text()
    assert "ApiKeysInvalid" in said
    assert not any(key in said for key in (FIRST, SECOND, THIRD))


def test_a_hubs_token_is_missed_by_its_secret_and_by_its_key(
    api_cluster: Cluster, operator: RunningOperator, namespace: str
) -> None:
    token = {"name": "chat-keys", "key": "hub"}
    make(api_cluster, namespace, model={"source": "hf://acme/thing", "tokenSecretRef": token})
    wait_for_reason(api_cluster, namespace, "SecretMissing")
    put_keys(api_cluster, namespace, other="x")
    wait_until(lambda: "with a key hub" in degraded(api_cluster, namespace)[1])
    put_keys(api_cluster, namespace, hub="x")
    wait_until(lambda: degraded(api_cluster, namespace)[0] != "SecretMissing")


def test_keys_stay_in_force_while_their_secret_cannot_be_read(
    api_cluster: Cluster, kubeconfig: Path, log: Path, namespace: str
) -> None:
    flags = ("--lease-seconds=3", "--secrets-seconds=0.5", "--poll-seconds=0.5")
    put_keys(api_cluster, namespace, first=FIRST)
    with RunningOperator(kubeconfig, log, *flags):
        make(api_cluster, namespace, access=ACCESS)
        wait_until(lambda: names(api_cluster, namespace) == ["first"])
    role = api_cluster.api.get(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{MANAGER}")
    rules = [
        rule | ({"verbs": ["create", "patch"]} if rule["resources"] == ["secrets"] else {})
        for rule in role["rules"]
    ]
    patch = json.dumps({"rules": rules})
    api_cluster.api.call("patch", ROLE, "--type=merge", f"-p={patch}")
    try:
        flag = f"--kubeconfig={kubeconfig}"
        asked = (flag, "auth", "can-i", "get", "secrets", f"-n={namespace}")
        wait_until(lambda: api_cluster.api.run(*asked).returncode != 0)
        # one that has just been started has only what gateways were told
        with RunningOperator(kubeconfig, log, *flags):
            make(api_cluster, namespace, access=ACCESS, replicas=3)
            assert "forbidden" in wait_for_reason(api_cluster, namespace, "SecretUnreadable")
            wait_for_status(api_cluster, namespace)
            assert names(api_cluster, namespace) == ["first"]

            install(api_cluster)
            put_keys(api_cluster, namespace, second=LIMITED)
            wait_until(lambda: names(api_cluster, namespace) == ["second"])
    finally:
        install(api_cluster)
