"""The samples on a real API server: each is taken as it stands."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster.cluster import Cluster
from quire_operator.resource.crd import NAME, crd

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "manifests/samples").glob("*.yaml"))


@pytest.fixture(scope="module")
def cluster(api_cluster: Cluster) -> Iterator[Cluster]:
    """With the CRD; afterwards without."""
    api_cluster.api.apply(crd())
    api_cluster.api.wait_established(f"crd/{NAME}")
    yield api_cluster
    api_cluster.api.call("delete", f"crd/{NAME}", "--timeout=60s")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_is_taken_as_it_stands(cluster: Cluster, file: Path) -> None:
    flags = ("--dry-run=server", "--validate=strict")
    answer = cluster.api.run("apply", f"--filename={file}", *flags)

    assert answer.returncode == 0, answer.stderr
    assert "inferenceservice.serving.quire.dev/" in answer.stdout


@pytest.mark.parametrize("name", ["network-policies", "operator-rbac"])
def test_what_is_made_for_an_installation_is_taken_as_it_stands(
    cluster: Cluster, name: str
) -> None:
    file = ROOT / f"manifests/{name}.yaml"
    cluster.api.call("create", "namespace", "quire-system")
    try:
        answer = cluster.api.run("apply", f"--filename={file}", "--dry-run=server")
        assert answer.returncode == 0, answer.stderr
    finally:
        cluster.api.call("delete", "namespace", "quire-system", "--timeout=60s")
