"""Parts of clusters that work without one."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster import requirements
from hack.cluster.base_image import leftovers, remove_older
from hack.cluster.catalogue import PROJECT
from hack.cluster.config import Size, make_command
from hack.cluster.images import write_image
from hack.cluster.requirements import find_obstacle


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QUIRE_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def answering() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)
        yield listening


def test_a_command_is_about_the_cluster_that_it_is_said_of() -> None:
    assert make_command("down", "default") == "make cluster-down"
    assert make_command("down", "other") == "make cluster-down NAME=other"


def test_an_image_has_its_files_and_starts_its_program(cache: Path) -> None:
    path = write_image("localhost/one:1", {"bin/one": b"content"}, ["/bin/one"])
    with tarfile.open(path) as archive:
        (manifest,) = json.load(_member(archive, "manifest.json"))
        config = json.load(_member(archive, manifest["Config"]))
        with tarfile.open(fileobj=_member(archive, manifest["Layers"][0])) as layer:
            assert _member(layer, "bin/one").read() == b"content"
            assert layer.getmember("bin/one").mode & 0o111
    assert manifest["RepoTags"] == ["localhost/one:1"]
    assert config["config"]["Entrypoint"] == ["/bin/one"]


def test_an_image_of_other_files_is_another_archive(cache: Path) -> None:
    first = write_image("localhost/one:1", {"one": b"1"}, ["/one"])
    assert write_image("localhost/one:1", {"one": b"1"}, ["/one"]) == first
    assert write_image("localhost/one:1", {"one": b"2"}, ["/one"]) != first


def test_of_an_images_archives_the_newest_two_are_kept(tmp_path: Path) -> None:
    for age, name in enumerate(("engine-3", "engine-2", "engine-1", "operator-1")):
        path = tmp_path / f"{name}.tar"
        path.touch()
        os.utime(path, (1000 - age, 1000 - age))
    remove_older(tmp_path, "engine")
    assert {path.name for path in tmp_path.iterdir()} == {
        "engine-3.tar",
        "engine-2.tar",
        "operator-1.tar",
    }


def test_of_what_builds_left_the_newest_is_kept() -> None:
    listed = [{"id": str(number), "created": 100 - number} for number in range(20)]
    assert leftovers(json.dumps(listed)) == ["19", "18", "17", "16"]
    assert leftovers(json.dumps(listed[:5])) == []
    assert leftovers("null") == []


def test_the_door_carries_both_ways_and_tells_each_end_of_the_others(
    answering: socket.socket,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as outside:
        inner_port = answering.getsockname()[1]
        command = ("-m", "hack.cluster.door", f"{outside.fileno()}=127.0.0.1:{inner_port}")
        door = subprocess.Popen(
            [sys.executable, *command], cwd=PROJECT, pass_fds=[outside.fileno()]
        )
        try:
            with socket.create_connection(outside.getsockname(), timeout=60) as client:
                served, _ = answering.accept()
                with served:
                    served.settimeout(60)
                    client.sendall(b"question" * 100_000)
                    client.shutdown(socket.SHUT_WR)
                    assert _read_all(served) == b"question" * 100_000
                    served.sendall(b"answer")
                assert _read_all(client) == b"answer"
        finally:
            door.kill()
            door.wait()


def test_the_door_closes_connections_that_lead_nowhere(answering: socket.socket) -> None:
    nowhere = answering.getsockname()[1]
    answering.close()
    with socket.create_server(("127.0.0.1", 0)) as outside:
        command = ("-m", "hack.cluster.door", f"{outside.fileno()}=127.0.0.1:{nowhere}")
        door = subprocess.Popen(
            [sys.executable, *command], cwd=PROJECT, pass_fds=[outside.fileno()]
        )
        try:
            with socket.create_connection(outside.getsockname(), timeout=60) as client:
                assert client.recv(1) == b""
        finally:
            door.kill()
            door.wait()


def test_real_nodes_need_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "needs root" in (find_obstacle(Size.NODES) or "")
    assert find_obstacle(Size.API) is None


def test_missing_programs_are_named_by_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(requirements, "_is_there", lambda name: name not in ("runc", "unshare"))
    assert (find_obstacle(Size.NODES) or "").endswith("apt-get install runc util-linux")
    monkeypatch.setattr(shutil, "which", lambda name, **_: f"/usr/bin/{name}")
    assert find_obstacle(Size.NODES, may_install=True) is None


def test_no_cluster_is_promised_to_other_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert "make kind-up" in (find_obstacle(Size.API) or "")


def _member(archive: tarfile.TarFile, name: str) -> "tarfile.ExFileObject":
    found = archive.extractfile(name)
    assert found is not None
    return found  # type: ignore[return-value]


def _read_all(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)
