"""Kubeconfig files: how clients find the API server and who they are."""

import base64
import json
from pathlib import Path

from hack.cluster.certificates import Authority
from hack.cluster.folders import write_private


def write_kubeconfig(
    path: Path, authority: Authority, server: str, user: str, *, group: str | None = None
) -> Path:
    """Write a user's file, with a certificate of theirs inside; JSON is YAML, too.

    Parameters
    ----------
    server
        The API server's URL as this client reaches it.
    """
    pair = authority.issue(user.replace(":", "-"), user, group=group)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "quire",
        "clusters": [
            {
                "name": "quire",
                "cluster": {
                    "server": server,
                    "certificate-authority-data": _encoded(authority.own.certificate),
                },
            }
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": _encoded(pair.certificate),
                    "client-key-data": _encoded(pair.key),
                },
            }
        ],
        "contexts": [{"name": "quire", "context": {"cluster": "quire", "user": user}}],
    }
    write_private(path, json.dumps(config, indent=1).encode())
    return path


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
