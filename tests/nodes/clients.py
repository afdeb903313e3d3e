"""A pod that asks services by their names, as an application in the cluster does."""

import json
from dataclasses import dataclass
from typing import Any

from hack.cluster.cluster import Cluster
from hack.cluster.quire_images import ENGINE
from tests.nodes.programs import FIRST_NODE

_ASK = """
import json, sys, urllib.error, urllib.request
url, body, headers = json.load(sys.stdin)
data = None if body is None else json.dumps(body).encode()
request = urllib.request.Request(url, data, {"content-type": "application/json"} | headers)
try:
    answer = urllib.request.urlopen(request, timeout=60)
except urllib.error.HTTPError as error:
    answer = error
except OSError as error:
    print(json.dumps([0, str(error)]))
    raise SystemExit
print(json.dumps([answer.status, answer.read().decode()]))
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
    """A pod in a namespace, on the first node."""

    name = "client"

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._api = cluster.api
        self._here = f"--namespace={namespace}"
        container = {
            "name": "main",
            "image": ENGINE,
            "imagePullPolicy": "Never",
            "command": ["sleep", "infinity"],
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": namespace, "name": self.name},
            "spec": {
                "containers": [container],
                "nodeSelector": {"kubernetes.io/hostname": FIRST_NODE},
                "terminationGracePeriodSeconds": 0,
            },
        }
        self._api.apply(pod)
        ready = ("--for=condition=Ready", f"pod/{self.name}", "--timeout=90s")
        self._api.call("wait", self._here, *ready)

    def ask(self, url: str, body: Any = None, **headers: str) -> Answer:
        """One request."""
        question = json.dumps([url, body, headers])
        command = ("exec", "-i", self.name, self._here, "--", "python3", "-c", _ASK)
        status, text = json.loads(self._api.call(*command, stdin=question))
        return Answer(status, text)
