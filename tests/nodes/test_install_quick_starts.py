"""The quick starts on kind and on a cluster, as they are written, on the nodes that there are.

What they do to images is left out: these are in the nodes already, under the pages' names.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster.binaries import provide_programs
from hack.cluster.cluster import Cluster
from hack.cluster.processes import require
from hack.cluster.quire_images import ENGINE, GATEWAY, OPERATOR
from tests.cluster.helm import Helm
from tests.cluster.operators import SYSTEM
from tests.docs.pages import blocks_of
from tests.docs.terminal import Reader, fresh_folder
from tests.nodes.installing import remove_kind

REGISTRY, OTHER = "ghcr.io/", "registry.example/"


@pytest.fixture
def reader(bare_cluster: Cluster, helm: Helm, tmp_path: Path) -> Iterator[Reader]:
    """At the repository, with kubectl, Helm and the cluster's kubeconfig; nothing is left."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, place in provide_programs(["helm", "kubectl"]).items():
        (programs / name).symlink_to(place)
    folder = tmp_path / "repository"
    folder.mkdir()
    env = {"PATH": str(programs), "KUBECONFIG": str(bare_cluster.kubeconfig)}
    yield Reader(fresh_folder(folder), env=env)
    bare_cluster.api.run("delete", "qis", "--all", "--timeout=110s")
    helm.uninstall()
    remove_kind(bare_cluster)
    bare_cluster.api.call("delete", "namespace", SYSTEM, "--timeout=110s")


def test_on_kind(reader: Reader) -> None:
    assert "Succeeded" in reader.run(blocks_of("start/kind.md")[2])
    assert "llama" in reader.run(blocks_of("start/kind.md")[3])
    with reader.start(blocks_of("start/kind.md")[4]) as asking:
        asking.wait_for('"completion_tokens":20')


def test_on_a_cluster_with_a_registry(bare_cluster: Cluster, reader: Reader) -> None:
    for node in bare_cluster.real.nodes:
        for image in (OPERATOR, GATEWAY, ENGINE):
            other = image.replace(REGISTRY, OTHER)
            command = ("--namespace=k8s.io", "images", "tag", "--force", image, other)
            ran = node.namespaces.run(require("ctr"), *command)
            assert ran.returncode == 0, ran.stderr
    assert "Succeeded" in reader.run(blocks_of("start/cluster.md")[1])
