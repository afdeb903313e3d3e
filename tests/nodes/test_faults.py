"""What is killed at a bad moment: all converges, the status is true, the old serves meanwhile."""

import base64
from collections.abc import Iterator

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.config import Size
from tests.nodes.clients import Client
from tests.nodes.conftest import NUM_NODES
from tests.nodes.faults import kill_container, kill_kubelet, kill_node, restarts
from tests.nodes.seen import pods_of
from tests.nodes.services import A100, L4, Body, Service, node_of, simulated

QUESTION = {"model": "chat", "prompt": "Once upon a time", "max_tokens": 3}


@pytest.fixture
def mended(cluster: Cluster) -> Iterator[None]:
    """What the test kills is started again, if it did not do that itself."""
    yield
    cluster.up(Size.NODES, NUM_NODES)


def revision(number: int) -> Body:
    """An override that makes other pods of the same engines."""
    return {"env": [{"name": "REVISION", "value": str(number)}]}


def revisions(service: Service) -> list[str]:
    """Revisions of the pods, and where they are not ready."""
    return [
        next(
            one["value"] for one in pod["spec"]["containers"][0]["env"] if one["name"] == "REVISION"
        )
        for pod in service.pods()
    ]


def answers(client: Client, service: Service) -> bool:
    """Whether the service answers by its name, as an application asks it."""
    answer = client.ask(f"{service.url}/completions", QUESTION)
    return answer.status == 200


def engine_answers(client: Client, service: Service, pod: Body) -> bool:
    """Whether an engine serves, asked as the gateway does: by its address, with the token."""
    path = f"/api/v1/namespaces/{service.namespace}/secrets/{service.name}-internal"
    tokens = base64.b64decode(service.cluster.api.get(path)["data"]["tokens"]).decode().split()
    url = f"http://{pod['status']['podIP']}:8000/v1/completions"
    answer = client.ask(url, QUESTION, authorization=f"Bearer {tokens[0]}")
    return answer.status == 200


def test_a_killed_engine_starts_again_while_the_other_serves(
    cluster: Cluster, service: Service, client: Client
) -> None:
    service.apply(simulated(A100), replicas=2)
    service.wait_for("Ready", "True")
    service.wait(lambda: answers(client, service), "the service answers")

    kill_container(cluster, service.pods()[0])
    assert answers(client, service)
    service.wait(lambda: "EngineFailed" in service.events(), "its end is told")
    assert answers(client, service)
    assert "status 137" in service.events()["EngineFailed"]
    service.wait_for("Ready", "True")
    assert sum(map(restarts, service.pods())) == 1


def test_an_engine_killed_as_it_starts_does_not_end_a_rollout(
    cluster: Cluster, service: Service, client: Client
) -> None:
    service.apply(simulated(A100, pod=revision(1)))
    service.wait_for("Ready", "True")
    service.wait(lambda: answers(client, service), "the service answers")
    (old,) = service.pods()
    service.apply(simulated(A100, pod=revision(2)))

    def runs() -> bool:
        states = [one["state"] for pod in new() for one in pod["status"]["containerStatuses"]]
        return any("running" in state for state in states)

    def new() -> list[Body]:
        pods = [pod for pod in service.pods() if pod["metadata"]["uid"] != old["metadata"]["uid"]]
        return [pod for pod in pods if pod["status"].get("containerStatuses")]

    service.wait(runs, "the new engine starts")
    kill_container(cluster, new()[0])
    assert answers(client, service)
    service.wait_for("Ready", "True")
    service.wait(lambda: revisions(service) == ["2"], "only the new one is left")


def test_a_killed_operator_goes_on_with_a_rollout(
    cluster: Cluster, service: Service, client: Client
) -> None:
    service.apply(simulated(A100, pod=revision(1)))
    service.wait_for("Ready", "True")
    service.wait(lambda: answers(client, service), "the service answers")
    (operator,) = pods_of(cluster, "operator")
    service.apply(simulated(A100, pod=revision(2)))
    service.wait(lambda: len(service.pods()) == 2, "a rollout has begun")

    kill_container(cluster, operator)
    assert answers(client, service)
    service.wait(lambda: revisions(service) == ["2"], "only the new one is left")
    service.wait_for("Ready", "True")
    assert service.status()["readyReplicas"] == 1
    assert sum(map(restarts, pods_of(cluster, "operator"))) > restarts(operator)


def test_a_killed_kubelet_leaves_engines_serving_and_the_status_says_what_is_missing(
    cluster: Cluster, service: Service, client: Client, mended: None
) -> None:
    service.apply(simulated(A100, pod=revision(1)))
    service.wait_for("Ready", "True")
    (old,) = service.pods()
    kill_kubelet(cluster, "node-2")
    service.apply(simulated(A100, pod=revision(2)))

    service.wait_for("Ready", "False")
    service.wait(lambda: "node-2" not in cluster.api.ready_nodes(), "the node is missed")
    said = service.wait_for("GPUsAvailable", "False")
    assert said["reason"] == "NodesNotReady"
    assert "untolerated taint" in said["message"]
    assert engine_answers(client, service, old)

    cluster.up(Size.NODES, NUM_NODES)
    service.wait_for("Ready", "True")
    service.wait(lambda: revisions(service) == ["2"], "only the new one is left")


def test_a_killed_node_takes_its_engines_and_others_serve(
    cluster: Cluster, service: Service, client: Client, mended: None
) -> None:
    either = simulated(A100) | {"products": [A100, L4]}
    service.apply(either | {"pod": revision(1)}, replicas=2)
    service.wait_for("Ready", "True")
    assert {node_of(pod) for pod in service.pods()} == {"node-2", "node-3"}
    service.apply(either | {"pod": revision(2)}, replicas=2)

    kill_node(cluster, "node-3")
    service.wait_for("Ready", "False")
    service.wait(lambda: "node-3" not in cluster.api.ready_nodes(), "the node is missed")
    assert service.condition("Available")["status"] == "True"
    assert answers(client, service)

    cluster.up(Size.NODES, NUM_NODES)
    service.wait(lambda: revisions(service) == ["2", "2"], "only new ones are left")
    service.wait_for("Ready", "True")
