"""Clusters without real nodes, started once for the tests that use them."""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from hack.cluster.binaries import provide_programs
from hack.cluster.cluster import Cluster
from hack.cluster.config import Size
from hack.cluster.errors import ModulesUnavailableError
from hack.cluster.temporary import temporary_cluster
from tests.cluster.helm import Helm
from tests.cluster.operators import RunningOperator, install, uninstall

NUM_KWOK_NODES = 20


@pytest.fixture(scope="session")
def api_cluster(cluster_programs: None) -> Iterator[Cluster]:
    """An API server with its controllers; tests leave it as they found it."""
    with temporary_cluster(f"test-api-{os.getpid()}", Size.API) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def kwok_cluster(cluster_programs: None) -> Iterator[Cluster]:
    """Twenty nodes of which there are only the objects."""
    with temporary_cluster(f"test-kwok-{os.getpid()}", Size.KWOK, NUM_KWOK_NODES) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def helm_program(cluster_programs: None, pytestconfig: pytest.Config) -> Path:
    """Helm, built where it is missing."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        try:
            return provide_programs(["helm"])["helm"]
        except ModulesUnavailableError as error:
            pytest.skip(f"tests of the chart: {error}")


@pytest.fixture(scope="session")
def helm(helm_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm without a cluster."""
    return Helm(helm_program, tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def kubeconfig(api_cluster: Cluster) -> Iterator[Path]:
    yield install(api_cluster)
    uninstall(api_cluster)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "operator.log"


@pytest.fixture
def namespace(api_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own."""
    name = request.node.name.replace("_", "-")[:40].strip("-")
    api_cluster.api.call("create", "namespace", name)
    yield name
    api_cluster.api.call("delete", "namespace", name, "--timeout=120s", "--ignore-not-found")


@pytest.fixture
def operator(kubeconfig: Path, log: Path) -> Iterator[RunningOperator]:
    with RunningOperator(kubeconfig, log, "--lease-seconds=3", "--engine-image=engine:1") as one:
        yield one
