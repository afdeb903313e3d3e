"""HTTP to a port of a pod, through the API server.

By port-forward, as kubectl does: the kubelet connects inside the pod, so no NetworkPolicy is in the
way. Where that cannot be had (no right to it, no kubelet), by the API server's own proxy.
"""

import http.client
from typing import Any, NamedTuple

from quire_local.cluster.api import ClusterApi, ClusterError, UnreachableError, pod_path

_SECONDS = 10.0
_MANAGEMENT_PORT = 8090


class PodPort(NamedTuple):
    """A port of a pod."""

    namespace: str
    name: str
    port: int


def management_of(pod: dict[str, Any]) -> PodPort:
    """The management port of a gateway's pod."""
    ports = (
        port["containerPort"]
        for container in pod["spec"]["containers"]
        for port in container.get("ports") or ()
        if port.get("name") == "management"
    )
    metadata = pod["metadata"]
    return PodPort(metadata["namespace"], metadata["name"], next(ports, _MANAGEMENT_PORT))


class PodClient:
    """GETs from one port of a pod, over a connection that is kept."""

    def __init__(self, api: ClusterApi, place: PodPort) -> None:
        self._api = api
        self._place = place
        self._connection: _Forwarded | None = None
        self.is_forwarded = True
        """Whether port-forward is used; it is tried first."""

    def get(self, path: str) -> bytes:
        """What is answered.

        Raises
        ------
        ClusterError
            There is no way to the pod, or it answers with an error.
        """
        if not self.is_forwarded:
            return self._proxied(path)
        is_kept = self._connection is not None
        try:
            return self._forwarded(path)
        except (OSError, http.client.HTTPException, ClusterError) as error:
            self.close()
            reason = error
        if is_kept:
            return self.get(path)  # the other end may have closed what rested
        try:
            content = self._proxied(path)
        except ClusterError as error:
            words = f"pod {self._place.name}: port-forward: {reason}; proxy: {error}"
            raise UnreachableError(words) from error
        self.is_forwarded = False
        return content

    def close(self) -> None:
        """Leave it."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _proxied(self, path: str) -> bytes:
        namespace, name, port = self._place
        return self._api.fetch(f"{pod_path(namespace, f'{name}:{port}')}/proxy{path}")

    def _forwarded(self, path: str) -> bytes:
        if self._connection is None:
            self._connection = _Forwarded(self._api, self._place)
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 400:
            raise UnreachableError(f"{path} is answered with {answer.status}")
        return content


def refusal_of(reason: str) -> str:
    """What the client says of a handshake, without the headers and the body that follow."""
    words = reason.partition(" -+-+- ")[0].strip()
    return words.splitlines()[0][:200] if words else "it cannot be opened"


class _Forwarded(http.client.HTTPConnection):
    """A connection whose bytes go by port-forward."""

    def __init__(self, api: ClusterApi, place: PodPort) -> None:
        super().__init__(place.name)
        self._api = api
        self._place = place

    def connect(self) -> None:
        """Open the way."""
        import websocket
        from kubernetes.client.exceptions import ApiException
        from kubernetes.stream import ws_client

        namespace, name, port = self._place
        url = f"{self._api.server}{pod_path(namespace, name)}/portforward"
        headers = self._api.headers()
        websocket.setdefaulttimeout(_SECONDS)  # the client has no other way to say it
        try:
            library: Any = ws_client  # it has no types
            self._forward: Any = library.portforward_call(
                self._api.settings,
                "GET",
                url,
                query_params=[("ports", str(port))],
                headers=headers,
            )
        except ApiException as error:
            raise UnreachableError(refusal_of(str(error.reason))) from error
        self.sock = self._forward.socket(port)
        self.sock.settimeout(_SECONDS)
