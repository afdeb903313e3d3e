"""Nodes of which there are only the objects: for tests of many."""

from typing import Any

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.config import Size
from hack.cluster.errors import ClusterError
from hack.cluster.gpu_nodes import MODELS
from tests.api.servers import wait_until
from tests.cluster.conftest import NUM_KWOK_NODES

_TOLERATION = {"key": "kwok.x-k8s.io/node", "operator": "Exists"}


def _deployment(name: str, replicas: int, tolerations: list[dict[str, str]]) -> dict[str, Any]:
    labels = {"app": name}
    container = {
        "name": "main",
        "image": "localhost/none:1",
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "tolerations": tolerations},
            },
        },
    }


def test_all_nodes_are_ready_and_have_gpus(kwok_cluster: Cluster) -> None:
    nodes = kwok_cluster.api.get("/api/v1/nodes")["items"]
    assert len(kwok_cluster.api.ready_nodes()) == len(nodes) == NUM_KWOK_NODES
    assert {node["status"]["allocatable"]["nvidia.com/gpu"] for node in nodes} == {"2"}
    products = {node["metadata"]["labels"]["nvidia.com/gpu.product"] for node in nodes}
    assert products == {model.product for model in MODELS}


def test_a_cluster_never_gets_fewer_nodes(kwok_cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match=r"with 20 nodes: it can only get more\. make cluster-"):
        kwok_cluster.up(Size.KWOK, NUM_KWOK_NODES - 1)
    assert len(kwok_cluster.api.ready_nodes()) == NUM_KWOK_NODES


def test_pods_that_tolerate_them_run_there(kwok_cluster: Cluster) -> None:
    api = kwok_cluster.api
    api.apply(_deployment("tolerant", 2 * NUM_KWOK_NODES, [_TOLERATION]))
    api.call("rollout", "status", "deployment/tolerant", "--timeout=90s")
    pods = api.get("/api/v1/namespaces/default/pods?labelSelector=app%3Dtolerant")["items"]
    assert len({pod["spec"]["nodeName"] for pod in pods}) == NUM_KWOK_NODES
    api.call("delete", "deployment/tolerant", "--cascade=foreground", "--timeout=90s")


def test_pods_that_do_not_tolerate_them_stay_away(kwok_cluster: Cluster) -> None:
    api = kwok_cluster.api
    api.apply(_deployment("picky", 1, []))

    def messages() -> list[str]:
        pods = api.get("/api/v1/namespaces/default/pods?labelSelector=app%3Dpicky")["items"]
        conditions = [one for pod in pods for one in pod["status"].get("conditions", [])]
        return [one["message"] for one in conditions if one["type"] == "PodScheduled"]

    wait_until(lambda: any("untolerated taint" in text for text in messages()))
    api.call("delete", "deployment/picky", "--cascade=foreground", "--timeout=90s")
