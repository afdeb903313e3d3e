"""Where looks come from: one gateway by its address, or all of a cluster."""

import time
from collections.abc import Callable
from typing import Any, Protocol

import httpx
import msgspec

from quire_engine.errors import ConfigError, QuireError
from quire_local.cluster.api import ClusterApi, ClusterError, RefusedError
from quire_local.cluster.pods import PodClient, PodPort, management_of
from quire_local.top.look import GatewayLook, Look, read_gateway

UP_URL, GATEWAY_URL = "http://127.0.0.1:8001", "http://127.0.0.1:8090"
"""Where `quire up` and a gateway of this machine tell it."""
_SECONDS = 10.0
_LIST_SECONDS = 5.0
_ROLE = "serving.quire.dev/role"
_FORBIDDEN = 403


class AwayError(QuireError):
    """No gateway answers now; the message says why."""


class Source(Protocol):
    """Something that can be looked at again and again."""

    label: str

    def look(self) -> Look:
        """Look now.

        Raises
        ------
        AwayError
            Nobody answers.
        """

    def name_of(self, address: str) -> str:
        """What people call the engine at an address."""


class UrlSource:
    """One gateway's management port, or the live page of `quire up`."""

    def __init__(self, url: str) -> None:
        self.label = url.rstrip("/")
        if not self.label.startswith(("http://", "https://")):
            raise ConfigError(f"{url}: say http://HOST:PORT of a gateway's management port")
        self._http = httpx.Client(base_url=self.label, timeout=_SECONDS, trust_env=False)

    def look(self) -> Look:
        """See `Source`."""
        try:
            told = _look_at(self._get)
        except httpx.HTTPError as error:
            raise AwayError(f"{self.label} does not answer: {_words(error)}") from error
        except msgspec.MsgspecError as error:
            raise AwayError(f"{self.label}/fleet is no gateway's: {error}") from error
        return Look(at=time.monotonic(), gateways=(told,))

    def name_of(self, address: str) -> str:
        """See `Source`."""
        return address

    def _get(self, path: str) -> bytes:
        answer = self._http.get(path)
        if answer.status_code == httpx.codes.NOT_FOUND:
            raise AwayError(
                f"{self.label} has no {path}: say the gateway's management port (8090), or that of"
                " the live page of quire up (8001)"
            )
        return answer.raise_for_status().content


class ClusterSource:
    """All ready gateways of a cluster."""

    def __init__(self, api: ClusterApi, namespace: str | None = None) -> None:
        self.label = api.server
        self._api = api
        self._namespace = namespace
        self._clients: dict[PodPort, PodClient] = {}
        self._names: dict[str, str] = {}
        self._listed_at = -_LIST_SECONDS

    def look(self) -> Look:
        """See `Source`."""
        now = time.monotonic()
        if now - self._listed_at >= _LIST_SECONDS:
            self._list()
            self._listed_at = now
        told, problems = [], []
        for client in self._clients.values():
            try:
                told.append(_look_at(client.get))
            except (ClusterError, msgspec.MsgspecError) as error:
                problems.append(str(error))
        if not told:
            self._listed_at = -_LIST_SECONDS  # others may be there by now
            raise AwayError("; ".join(problems) or self._no_gateway())
        return Look(at=time.monotonic(), gateways=tuple(told), problems=tuple(problems))

    def name_of(self, address: str) -> str:
        """See `Source`."""
        return self._names.get(address.rpartition(":")[0].strip("[]"), address)

    def _list(self) -> None:
        gateways = {management_of(pod) for pod in self._pods("gateway") if _is_ready(pod)}
        for gone in self._clients.keys() - gateways:
            self._clients.pop(gone).close()
        for new in sorted(gateways - self._clients.keys()):
            self._clients[new] = PodClient(self._api, new)
        self._names = {
            address["ip"]: pod["metadata"]["name"]
            for pod in self._pods("engine")
            for address in pod["status"].get("podIPs") or ()
        }

    def _pods(self, role: str) -> list[dict[str, Any]]:
        part = f"namespaces/{self._namespace}/" if self._namespace and role == "gateway" else ""
        try:
            return self._api.items(f"/api/v1/{part}pods", labelSelector=f"{_ROLE}={role}")
        except RefusedError as error:
            if error.status == _FORBIDDEN and role == "engine":
                return []  # engines are shown by their addresses then
            if error.status == _FORBIDDEN and not part:
                raise AwayError(f"{error}; say --namespace and that of the gateway") from error
            raise AwayError(str(error)) from error
        except ClusterError as error:
            raise AwayError(str(error)) from error

    def _no_gateway(self) -> str:
        where = f"namespace {self._namespace}" if self._namespace else "the cluster"
        return f"{where} has no ready gateway (label {_ROLE}=gateway): quire doctor says why"


def find_local() -> UrlSource | None:
    """What of quire runs on this machine, if anything."""
    for url in (UP_URL, GATEWAY_URL):
        source = UrlSource(url)
        try:
            source.look()
        except AwayError:
            continue
        return source
    return None


def _look_at(get: Callable[[str], bytes]) -> GatewayLook:
    return read_gateway(get("/fleet"), get("/metrics"))


def _words(error: Exception) -> str:
    """What an error says; some say nothing but what they are."""
    return str(error) or type(error).__name__


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
