"""Clusters are made, found again whatever happened to them, and removed without a trace."""

import os
import signal
from pathlib import Path

import pytest

from hack.cluster.__main__ import main
from hack.cluster.cluster import Cluster
from hack.cluster.config import Size
from hack.cluster.errors import ClusterError
from hack.cluster.temporary import remove_abandoned
from tests.cluster.owners import OwnedCluster


def test_up_a_second_time_leaves_running_programs_alone(api_cluster: Cluster) -> None:
    before = api_cluster.launcher.running()
    api_cluster.up(Size.API, 0)
    assert set(api_cluster.launcher.running()) == set(before)


def test_up_refuses_another_size_than_the_clusters(api_cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match=r"is of size api .* make cluster-down"):
        api_cluster.up(Size.KWOK, 2)


def test_programs_that_were_killed_are_missed_and_started_again(
    api_cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    api_cluster.api.call("create", "configmap", "kept")
    before = {process.role: process.pid for process in api_cluster.launcher.running()}
    for role in ("etcd", "kube-apiserver"):
        os.kill(before[role], signal.SIGKILL)
    api_cluster.launcher.kill("etcd", "kube-apiserver")  # waits until they are gone
    assert main(["status", "--name", api_cluster.name]) == 1
    assert "not running: etcd, kube-apiserver; make cluster-up" in capsys.readouterr().err
    api_cluster.up(Size.API, 0)
    assert main(["status", "--name", api_cluster.name]) == 0
    assert capsys.readouterr().out == f"export KUBECONFIG={api_cluster.kubeconfig}\n"
    assert api_cluster.api.get("/api/v1/namespaces/default/configmaps/kept") is not None
    api_cluster.api.call("delete", "configmap", "kept")


def test_a_killed_owner_takes_its_cluster_along(cluster_programs: None) -> None:
    with OwnedCluster("test-owned", Size.API) as owned:
        assert owned.processes()
        owned.kill_owner()
        owned.wait_until_programs_are_gone()
        assert owned.cluster.exists
    assert "test-owned" in remove_abandoned()
    assert not owned.cluster.folder.exists()


def test_status_of_no_cluster_says_how_to_make_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--name", "never-made"]) == 1
    assert (
        "there is no cluster never-made: make cluster-up NAME=never-made makes"
        in capsys.readouterr().err
    )


def test_down_of_no_cluster_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["down", "--name", "never-made"]) == 0
    assert "does not exist" in capsys.readouterr().err


def test_a_damaged_cluster_can_be_removed() -> None:
    cluster = Cluster("test-damaged")
    cluster.folder.mkdir(parents=True)
    Path(cluster.folder / "config.json").write_text("{")
    with pytest.raises(ClusterError, match=r"damaged .* make cluster-down NAME=test-damaged "):
        cluster.up(Size.API, 0)
    cluster.down()
    assert not cluster.folder.exists()
