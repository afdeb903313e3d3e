"""One cluster with real nodes for all tests, made once.

Nodes 1 to 3 have two H100s, A100s and L4s each. Tests that install quire come first, and take out
what they installed. The others have an operator and a gateway in the cluster; each has a namespace
of its own, and leaves nodes and operator as it found them.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

import pytest

from hack.cluster.binaries import announce, provide_programs
from hack.cluster.cluster import Cluster
from hack.cluster.config import Size
from hack.cluster.quire_images import all_archives
from hack.cluster.temporary import temporary_cluster
from tests.cluster.helm import Helm
from tests.cluster.operators import SYSTEM, install
from tests.nodes.clients import Client
from tests.nodes.installing import make_namespace
from tests.nodes.programs import gateway, operator, roll_out
from tests.nodes.services import Service
from tests.nodes.times import Times

NUM_NODES = 3
_INSTALLING = "test_install"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that install come first: the cluster is bare only once."""
    here = [item for item in items if item.path.parent.name == "nodes"]
    here.sort(key=lambda item: not item.path.name.startswith(_INSTALLING))
    items[:] = [item for item in items if item not in here] + here


@pytest.fixture(scope="session")
def times() -> Times:
    """How long what takes long took."""
    return Times()


@pytest.fixture(scope="session")
def bare_cluster(
    cluster_programs: None, pytestconfig: pytest.Config, times: Times
) -> Iterator[Cluster]:
    """Nodes with our images, and nothing of quire that runs."""
    with _shown(pytestconfig), times.of("images built, or found"):
        archives = all_archives()
        announce(f"starting {NUM_NODES} nodes, and loading images into them")
    times.start("cluster up")
    with temporary_cluster(f"test-nodes-{os.getpid()}", Size.NODES, NUM_NODES) as cluster:
        times.stop("cluster up")
        with times.of("images loaded into all nodes"):
            for archive in archives:
                cluster.real.load_image(archive)
        yield cluster


@pytest.fixture(scope="session")
def helm(bare_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm as the cluster's administrator."""
    program = provide_programs(["helm"])["helm"]
    return Helm(program, tmp_path_factory.mktemp("helm"), bare_cluster.kubeconfig, SYSTEM)


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
def restricted(bare_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own that takes only restricted pods."""
    name = request.node.name.replace("_", "-")[:40].strip("-")
    make_namespace(bare_cluster, name)
    yield name
    bare_cluster.api.call("delete", "namespace", name, "--timeout=110s")


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
