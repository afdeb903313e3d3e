"""The API server, asked as the kubeconfig says: any way to log in that kubectl has.

ClusterError               it cannot be used; the message says what to do
├── UnreachableError       nothing answers at its address, or there is no kubeconfig
└── RefusedError           it answers, and refuses
"""

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from yaml import YAMLError

from quire_engine.errors import QuireError

_SECONDS = 10.0
_NOT_FOUND = 404
_JSON = "application/json"
_METADATA_ONLY = f"{_JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


class ClusterError(QuireError):
    """A cluster cannot be used."""


class UnreachableError(ClusterError):
    """Nothing answers, or nobody says where it is."""


class RefusedError(ClusterError):
    """The API server answers with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ClusterApi:
    """Requests to one API server.

    Parameters
    ----------
    kubeconfig
        A file; None takes KUBECONFIG, then ~/.kube/config, then a pod's own account.
    context
        Of the file; None takes its current one.

    Raises
    ------
    UnreachableError
        There is no such file, or it has no such context.
    """

    def __init__(self, kubeconfig: str | None = None, context: str | None = None) -> None:
        kubernetes = _client_library()
        client, config = kubernetes.client, kubernetes.config
        self.settings = client.Configuration()
        is_in_pod = kubeconfig is None and not has_kubeconfig()
        try:
            if is_in_pod:
                config.load_incluster_config(self.settings)
            else:
                config.load_kube_config(kubeconfig, context, self.settings, persist_config=False)
        except (config.ConfigException, OSError, YAMLError, ValueError, TypeError) as error:
            # of what is no kubeconfig at all, the library fails as it comes
            is_broken = not isinstance(error, config.ConfigException | OSError)
            reason = str(error).rstrip(".")
            if is_in_pod:
                reason = "there is no kubeconfig, and this is no pod"
            elif kubeconfig is not None and not Path(kubeconfig).expanduser().is_file():
                reason = f"there is no file {kubeconfig}"
            elif is_broken:
                reason = f"{kubeconfig or 'the kubeconfig'} is no kubeconfig"
            raise UnreachableError(
                f"no cluster is known: {reason}; set KUBECONFIG, or say --kubeconfig and --context"
            ) from error
        self.settings.retries = False
        self._client = client.ApiClient(self.settings)

    @property
    def server(self) -> str:
        """Its address."""
        return str(self.settings.host)

    def get(self, path: str, **query: str) -> Any:  # noqa: ANN401 - whatever JSON there is
        """The document at a path; None if there is none.

        Raises
        ------
        ClusterError
            The API server cannot be reached, or refuses.
        """
        return self._document("GET", path, query, None)

    def items(self, path: str, **query: str) -> list[dict[str, Any]]:
        """The objects of a list; none where the kind is not served."""
        found = self.get(path, **query)
        return list(found["items"]) if found else []

    def exists(self, path: str) -> bool:
        """Whether there is an object at a path; nothing of its content is read."""
        status, content = self._ask("GET", path, {}, None, accept=_METADATA_ONLY)
        if status >= 400 and status != _NOT_FOUND:
            raise RefusedError(status, _words(content))
        return status != _NOT_FOUND

    def post(self, path: str, body: dict[str, Any]) -> Any:  # noqa: ANN401 - as above
        """What the API server says to an object."""
        return self._document("POST", path, {}, body)

    def fetch(self, path: str) -> bytes:
        """The bytes at a path, such as that of a proxy to a pod."""
        status, content = self._ask("GET", path, {}, None)
        if status >= 400:
            raise RefusedError(status, f"{path}: {_words(content)}")
        return content

    def headers(self) -> dict[str, str]:
        """What a request that is not made here needs to be let in."""
        return dict(self._serialize("GET", "/", {}, None)[2])

    def _document(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:  # noqa: ANN401
        status, content = self._ask(method, path, query, body)
        if status == _NOT_FOUND:
            return None
        if status >= 400:
            raise RefusedError(status, _words(content))
        return json.loads(content)

    def _ask(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: Any,  # noqa: ANN401
        accept: str = _JSON,
    ) -> tuple[int, bytes]:
        from urllib3.exceptions import HTTPError

        refusal = _client_library().client.exceptions.ApiException

        serialized = self._serialize(method, path, query, body, accept)
        try:
            answer = self._client.call_api(*serialized, _request_timeout=_SECONDS)
            return int(answer.status), bytes(answer.read())
        except (HTTPError, refusal, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise UnreachableError(f"{self.server} does not answer: {reason}") from error

    def _serialize(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: Any,  # noqa: ANN401
        accept: str = _JSON,
    ) -> Any:  # noqa: ANN401
        return self._client.param_serialize(
            method,
            path,
            query_params=list(query.items()),
            header_params={"accept": accept}
            | ({"Content-Type": _JSON} if body is not None else {}),
            body=body,
            auth_settings=["BearerToken"],
        )


def _client_library() -> Any:  # noqa: ANN401 - half of it has no types
    """Kubernetes' own client, imported only where a cluster is asked for."""
    import kubernetes
    import kubernetes.client
    import kubernetes.config

    return kubernetes


def has_kubeconfig() -> bool:
    """Whether there is a file that kubectl would use."""
    named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return any(path.exists() for path in named or [Path.home() / ".kube" / "config"])


def selector(**labels: str) -> str:
    """Labels for `labelSelector`; `__` stands for `/` and `_` for `.` in their names."""
    return ",".join(
        f"{name.replace('__', '/').replace('_', '.')}={value}" for name, value in labels.items()
    )


def pod_path(namespace: str, name: str) -> str:
    """The path of a pod."""
    return f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}"


def _words(content: bytes) -> str:
    """What an error says."""
    try:
        return str(json.loads(content)["message"])
    except (ValueError, KeyError, TypeError):
        return content.decode(errors="replace").strip()[:300]
