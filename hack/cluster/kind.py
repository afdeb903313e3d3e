"""Clusters for users with Docker and kind: `python -m hack.cluster.kind up`.

The nodes have the labels that ours have, and say that they have GPUs: kind's kubelets take the word
of the node's status for it. So the same InferenceServices find the same nodes.
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hack.cluster.binaries import announce
from hack.cluster.errors import ClusterError
from hack.cluster.folders import cluster_folder
from hack.cluster.gpu_nodes import GPUS_PER_NODE, RESOURCE, model_of

NAME = "quire"
_DEFAULT_NODES = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command; returns the process's exit status."""
    parser = argparse.ArgumentParser(prog="python -m hack.cluster.kind", description=__doc__)
    parser.add_argument("command", choices=["up", "down"])
    parser.add_argument("--nodes", type=int, default=_DEFAULT_NODES, help="workers (default: 3)")
    options = parser.parse_args(arguments)
    try:
        require_docker()
        if options.command == "up":
            print(f"export KUBECONFIG={up(options.nodes)}")
        else:
            down()
    except ClusterError as error:
        print(f"kind: error: {error}", file=sys.stderr)
        return 1
    return 0


def require_docker() -> None:
    """Refuse a machine that cannot have such a cluster.

    Raises
    ------
    ClusterError
        kind, kubectl or Docker is missing, or Docker's engine does not answer.
    """
    for program, where in (
        ("docker", "https://docs.docker.com/engine/install"),
        ("kind", "https://kind.sigs.k8s.io"),
        ("kubectl", "https://kubernetes.io/docs/tasks/tools"),
    ):
        if shutil.which(program) is None:
            raise ClusterError(
                f"{program} is not installed: see {where}; on Linux, make cluster-up needs none "
                "of Docker, kind and kubectl"
            )
    if _try("docker", "info").returncode != 0:
        raise ClusterError(
            "Docker's engine does not answer: start it; on Linux, make cluster-up needs no Docker"
        )


def up(num_nodes: int) -> Path:
    """Make the cluster if there is none; returns the path of its kubeconfig.

    Raises
    ------
    ClusterError
        kind fails: its words are in the message.
    """
    kubeconfig = cluster_folder("state") / "kind.kubeconfig"
    if NAME not in _run("kind", "get", "clusters").split():
        announce(f"making a kind cluster with {num_nodes} workers")
        kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        config = json.dumps(kind_config(num_nodes))
        _run("kind", "create", "cluster", "--config=-", "--wait=180s", stdin=config)
    _run("kind", "export", "kubeconfig", f"--name={NAME}", f"--kubeconfig={kubeconfig}")
    capacity = {"status": {"capacity": {RESOURCE: str(GPUS_PER_NODE)}}}
    for node in _run("kubectl", f"--kubeconfig={kubeconfig}", "get", "nodes", "-o=name").split():
        if node.endswith("control-plane"):
            continue
        command = ("kubectl", f"--kubeconfig={kubeconfig}", "patch", node)
        _run(*command, "--subresource=status", "--type=merge", f"--patch={json.dumps(capacity)}")
    announce("the cluster is ready; make kind-down removes it")
    return kubeconfig


def down() -> None:
    """Remove the cluster; nothing happens if there is none.

    Raises
    ------
    ClusterError
        kind fails: its words are in the message.
    """
    _run("kind", "delete", "cluster", f"--name={NAME}")
    (cluster_folder("state") / "kind.kubeconfig").unlink(missing_ok=True)
    announce("the kind cluster is removed")


def kind_config(num_nodes: int) -> dict[str, Any]:
    """What kind makes: a control plane, and workers with our nodes' labels."""
    workers = [
        {"role": "worker", "labels": model_of(index).labels()} for index in range(1, num_nodes + 1)
    ]
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "name": NAME,
        "nodes": [{"role": "control-plane"}, *workers],
    }


def _run(*command: str, stdin: str | None = None) -> str:
    ran = _try(*command, stdin=stdin)
    if ran.returncode != 0:
        raise ClusterError(f"{' '.join(command[:3])} failed: {ran.stderr.strip()[-2000:]}")
    return ran.stdout


def _try(*command: str, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
