"""What a cluster is to be, and what was decided when it was made."""

import dataclasses
import enum
import json
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.cluster.errors import ClusterError
from hack.cluster.folders import write_private

DEFAULT_NAME = "default"


def make_command(target: str, name: str) -> str:
    """What to type for a cluster: without its name it would be about another."""
    return f"make cluster-{target}" + ("" if name == DEFAULT_NAME else f" NAME={name}")


class Size(enum.StrEnum):
    """How much of a cluster there is."""

    API = "api"
    """etcd, API server and controllers: objects, permissions, deletion of namespaces."""
    KWOK = "kwok"
    """Besides, a scheduler, and nodes of which there are only the objects."""
    NODES = "nodes"
    """Instead, nodes that run containers, with fake GPUs, DNS and an ingress."""


@dataclass(frozen=True)
class Ports:
    """Ports on the machine's loopback address."""

    api: int
    """The API server's, or the way to it."""
    ingress: int
    """The way to Envoy, in clusters with real nodes."""
    etcd: int
    etcd_peer: int
    controllers: int
    scheduler: int
    kwok: int


@dataclass(frozen=True)
class ClusterConfig:
    """A cluster's choices, kept in its folder."""

    name: str
    size: Size
    num_nodes: int
    ports: Ports

    def save(self, path: Path) -> None:
        """Write it, for this process and later ones."""
        write_private(path, json.dumps(dataclasses.asdict(self), indent=1).encode())


def load(path: Path) -> ClusterConfig | None:
    """Read what was saved; None if nothing was.

    Raises
    ------
    ClusterError
        The file is of another version of this program, or damaged.
    """
    try:
        fields: dict[str, Any] = json.loads(path.read_text())
        ports = Ports(**fields.pop("ports"))
        return ClusterConfig(size=Size(fields.pop("size")), ports=ports, **fields)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        down = make_command("down", path.parent.name)
        raise ClusterError(f"{path} is damaged ({error}): {down} removes it") from error


def choose_ports() -> Ports:
    """Ports of the loopback address that are free now."""
    fields = dataclasses.fields(Ports)
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in fields]
    try:
        return Ports(*(opened.getsockname()[1] for opened in sockets))
    finally:
        for opened in sockets:
            opened.close()
