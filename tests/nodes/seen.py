"""What runs in the cluster, and telling whoever runs the tests of it."""

from typing import Any

import pytest

from hack.cluster.cluster import Cluster
from tests.cluster.operators import SYSTEM

Body = dict[str, Any]


def pods_of(cluster: Cluster, role: str, namespace: str = SYSTEM) -> list[Body]:
    """All pods of a role (gateway, operator or engine), also those that are ending."""
    selector = f"labelSelector=serving.quire.dev%2Frole%3D{role}"
    found = cluster.api.get(f"/api/v1/namespaces/{namespace}/pods?{selector}")
    return list(found["items"]) if found else []


def uids(pods: list[Body]) -> set[str]:
    """Who they are."""
    return {pod["metadata"]["uid"] for pod in pods}


def image_of(pod: Body) -> str:
    """What its container runs."""
    image: str = pod["spec"]["containers"][0]["image"]
    return image


def show(capsys: pytest.CaptureFixture[str], table: str) -> None:
    """Print it, whether or not the test passes."""
    with capsys.disabled():
        print(table)
