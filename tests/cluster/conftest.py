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
