"""One cluster with real nodes for all tests, with the operator in it; made once.

Nodes 1 to 3 have two H100s, A100s and L4s each. A test has a namespace of its own, and leaves
nodes and operator as it found them.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import pytest

from hack.cluster.binaries import announce
from hack.cluster.cluster import Cluster
from hack.cluster.config import Size
from hack.cluster.quire_images import engine_archive, gateway_archive, operator_archive
from hack.cluster.temporary import temporary_cluster
from tests.cluster.operators import install
from tests.nodes.clients import Client
from tests.nodes.programs import gateway, load, operator, roll_out
from tests.nodes.services import Service

NUM_NODES = 3


@pytest.fixture(scope="session")
def bare_cluster(cluster_programs: None, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """Nodes with our images, and nothing of quire that runs."""
    with _shown(pytestconfig):
        engine, others = engine_archive(), [operator_archive(), gateway_archive()]
        announce(f"starting {NUM_NODES} nodes, and loading images into them")
    with temporary_cluster(f"test-nodes-{os.getpid()}", Size.NODES, NUM_NODES) as cluster:
        load(cluster, others, everywhere=engine)
        yield cluster


@pytest.fixture(scope="session")
def cluster(bare_cluster: Cluster) -> Cluster:
    """With the operator, and a gateway."""
    install(bare_cluster)
    roll_out(bare_cluster, operator())
    roll_out(bare_cluster, *gateway())  # the operator has made its root secret
    return bare_cluster


def _shown(config: pytest.Config) -> AbstractContextManager[None]:
    """What is said in there is not captured: images take minutes the first time."""
    capture = config.pluginmanager.getplugin("capturemanager")
    shown: AbstractContextManager[None] = (
        capture.global_and_fixture_disabled() if capture else nullcontext()
    )
    return shown


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own."""
    name = request.node.name.replace("_", "-")[:40].strip("-")
    cluster.api.call("create", "namespace", name)
    yield name
    cluster.api.call("delete", "namespace", name, "--timeout=110s")


@pytest.fixture
def service(cluster: Cluster, namespace: str) -> Service:
    """A service, not made yet."""
    return Service(cluster, namespace)


@pytest.fixture
def client(cluster: Cluster, namespace: str) -> Client:
    """A pod that asks."""
    return Client(cluster, namespace)
