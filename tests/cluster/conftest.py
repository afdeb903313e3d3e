"""Clusters without real nodes, started once for the tests that use them."""

import os
from collections.abc import Iterator

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.config import Size
from hack.cluster.temporary import temporary_cluster

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
