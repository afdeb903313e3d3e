"""Clients of a cluster's API server: kubectl for objects, and plain requests for polling."""

import http.client
import json
import ssl
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.cluster.certificates import Authority
from hack.cluster.errors import ClusterError

ADMIN = "quire-admin"
_FIELD_MANAGER = "quire-cluster"


@dataclass(frozen=True)
class ApiClient:
    """Talks to the API server as the cluster's administrator."""

    kubectl: Path
    kubeconfig: Path
    authority: Authority
    port: int

    def run(
        self, *arguments: str, stdin: str | None = None, timeout_seconds: float = 120
    ) -> "subprocess.CompletedProcess[str]":
        """Run kubectl, whatever comes of it."""
        cache = self.kubeconfig.with_name("kubectl-cache")
        return subprocess.run(
            [self.kubectl, f"--kubeconfig={self.kubeconfig}", f"--cache-dir={cache}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )

    def call(self, *arguments: str, stdin: str | None = None) -> str:
        """Return what kubectl prints.

        Raises
        ------
        ClusterError
            It refuses: its words are in the message.
        """
        ran = self.run(*arguments, stdin=stdin)
        if ran.returncode != 0:
            raise ClusterError(f"kubectl {' '.join(arguments)} failed: {ran.stderr.strip()}")
        return ran.stdout

    def wait_established(self, *kinds: str, seconds: float = 60) -> None:
        """Wait until the API server serves kinds, named as crd/NAME or --filename=PATH.

        A kind that has just been made has no conditions at all for a moment, of which `kubectl
        wait` makes an error: it is asked again.

        Raises
        ------
        ClusterError
            They are not served in time.
        """
        deadline = time.monotonic() + seconds
        while True:
            left = max(deadline - time.monotonic(), 1)
            try:
                self.call("wait", "--for=condition=Established", *kinds, f"--timeout={left:.0f}s")
            except ClusterError as error:
                if "accessor error" not in str(error) or time.monotonic() >= deadline:
                    raise
                time.sleep(0.2)
            else:
                return

    def apply(self, *objects: dict[str, Any]) -> None:
        """Create objects, or make them what they are to be."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.apply_text(json.dumps(items))

    def apply_text(self, manifest: str) -> None:
        """Apply a manifest, as YAML or JSON."""
        self.call(
            "apply",
            "--server-side",
            "--force-conflicts",
            f"--field-manager={_FIELD_MANAGER}",
            "--filename=-",
            stdin=manifest,
        )

    def get(self, path: str) -> Any:  # noqa: ANN401 (whatever JSON there is)
        """Return the document at a path of the API; None if there is none or no server."""
        pair = self.authority.issue(ADMIN, ADMIN, group="system:masters")
        context = ssl.create_default_context(cafile=str(self.authority.own.certificate))
        context.load_cert_chain(pair.certificate, pair.key)
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, context=context, timeout=10
        )
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        if answer.status != http.client.OK:
            return None
        is_json = "json" in answer.headers.get("content-type", "")
        return json.loads(body) if is_json else body.decode()

    def is_ready(self) -> bool:
        """Whether the API server answers and has all that it needs."""
        return bool(self.get("/readyz") == "ok")

    def ready_nodes(self) -> list[str]:
        """Names of the nodes that are Ready."""
        nodes = self.get("/api/v1/nodes") or {"items": []}
        return [node["metadata"]["name"] for node in nodes["items"] if is_true(node, "Ready")]


def is_true(item: dict[str, Any], condition: str) -> bool:
    """Whether a condition of an object's status is True."""
    found: Sequence[dict[str, str]] = item.get("status", {}).get("conditions") or ()
    return any(one["type"] == condition and one["status"] == "True" for one in found)
