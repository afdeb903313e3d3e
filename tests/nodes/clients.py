"""A pod that asks services by their names, as an application in the cluster does."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.cluster.cluster import Cluster
from hack.cluster.network import CONTROL_PLANE
from hack.cluster.quire_images import ENGINE
from tests.nodes.programs import FIRST_NODE, RESTRICTED

_ASK = """
import json, ssl, sys, urllib.error, urllib.request
url, body, headers, authority = json.load(sys.stdin)
data = None if body is None else json.dumps(body).encode()
request = urllib.request.Request(url, data, {"content-type": "application/json"} | headers)
context = ssl.create_default_context(cadata=authority)
try:
    answer = urllib.request.urlopen(request, timeout=60, context=context)
except urllib.error.HTTPError as error:
    answer = error
except OSError as error:
    print(json.dumps([0, str(error)]))
    raise SystemExit
print(json.dumps([answer.status, answer.read().decode()]))
"""
_LOOK = """
import json, ssl, sys
for host, port in json.load(sys.stdin):
    print(json.dumps(ssl.get_server_certificate((host, port), timeout=60)))
"""


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    """Of HTTP; 0 if nothing came."""
    text: str

    def json(self) -> Any:
        """The body."""
        return json.loads(self.text)


class Client:
    """A pod in a namespace, on the first node.

    Parameters
    ----------
    outside
        Names that stand for Envoy there, as the DNS of people outside of the cluster would have it.
    authority
        Certificate of who signs for those that may answer by TLS.
    """

    name = "client"

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        outside: Sequence[str] = (),
        authority: Path | None = None,
    ) -> None:
        self._api = cluster.api
        self._here = f"--namespace={namespace}"
        self._authority = authority.read_text() if authority else None
        container = {
            "name": "main",
            "image": ENGINE,
            "imagePullPolicy": "Never",
            "command": ["sleep", "infinity"],
            "securityContext": RESTRICTED,
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": namespace, "name": self.name},
            "spec": {
                "containers": [container],
                "hostAliases": [{"ip": CONTROL_PLANE, "hostnames": list(outside)}],
                "nodeSelector": {"kubernetes.io/hostname": FIRST_NODE},
                "securityContext": {
                    "runAsNonRoot": True,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "terminationGracePeriodSeconds": 0,
            },
        }
        self._api.apply(pod)
        ready = ("--for=condition=Ready", f"pod/{self.name}", "--timeout=90s")
        self._api.call("wait", self._here, *ready)

    def ask(self, url: str, body: Any = None, **headers: str) -> Answer:
        """One request."""
        question = json.dumps([url, body, headers, self._authority])
        status, text = json.loads(self._run(_ASK, question))
        return Answer(status, text)

    def certificates(self, *places: tuple[str, int]) -> list[str]:
        """What servers show at these addresses and ports, in PEM; whoever signed it."""
        return [json.loads(line) for line in self._run(_LOOK, json.dumps(places)).splitlines()]

    def _run(self, program: str, given: str) -> str:
        command = ("exec", "-i", self.name, self._here, "--", "python3", "-c", program)
        return self._api.call(*command, stdin=given)
