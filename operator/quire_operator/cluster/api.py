"""Requests to the API server.

The dynamic client of `kubernetes.aio` does the transport; of it only `request` is used, so that
nothing is discovered and no cache file is shared. Every request has a time limit. What may be
answered the next time is a `RetryableError`; nothing is retried here, since the work queue does it
with what is true by then.
"""

import json
from collections.abc import Mapping
from typing import Any

import aiohttp
import msgspec
import yaml
from kubernetes.aio import client, config
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.dynamic import DynamicClient

from quire_operator.cluster.kinds import BY_NAME, EVENTS, SERVICES, Kind
from quire_operator.errors import ApiError, RetryableError, SettingsError

Body = dict[str, Any]

_TIMEOUT_SECONDS = 10.0
_RETRYABLE = frozenset((408, 409, 429, 500, 502, 503, 504))
_APPLY_PATCH = "application/apply-patch+yaml; charset=utf-8"
_PERMANENT_500 = "failed to create typed patch object"
_OLDER_KIND = "field not declared in schema"
_ONE_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

# what the client raises for a kubeconfig that is none, by what is wrong with it
_UNREADABLE = (config.ConfigException, yaml.YAMLError, OSError, TypeError)


class ClusterApi:
    """One connection pool to the API server."""

    def __init__(self, api_client: client.ApiClient) -> None:
        self._client = api_client
        self._dynamic = DynamicClient(api_client)  # type: ignore[no-untyped-call]

    @classmethod
    async def connect(cls) -> "ClusterApi":
        """Connect as a pod's service account, or as the kubeconfig says.

        Raises
        ------
        SettingsError
            There is neither, or the kubeconfig cannot be read.
        """
        settings = client.Configuration()
        try:
            await _configure(settings)
        except _UNREADABLE as error:
            raise SettingsError(
                f"no cluster to work in: {error}; set KUBECONFIG to a file with a current context,"
                " or run in a pod with a service account"
            ) from error
        # proxies of the environment: kopf's watches know none either, and to look for them takes
        # more than half of each request's time
        settings.client_session_kwargs = {"trust_env": False}
        return cls(client.ApiClient(configuration=settings))

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()  # type: ignore[no-untyped-call]

    async def apply(self, body: Body, manager: str, *, subresource: str = "") -> Body:
        """Server-side apply of an object, or of a part of it; returns its metadata alone."""
        kind, metadata = BY_NAME[body["kind"]], body["metadata"]
        path = kind.path(metadata.get("namespace"), metadata["name"])
        return await self._request(
            "patch",
            path + (f"/{subresource}" if subresource else ""),
            # a text: the client would copy an object twice, and write it slowly
            body=msgspec.json.encode(body).decode(),
            content_type=_APPLY_PATCH,
            header_params={"Accept": _ONE_METADATA_ONLY},
            field_manager=manager,
            force_conflicts=True,
        )

    async def put_right(self, body: Body, manager: str, *path: str) -> Body:
        """Make a part of an object exactly what it is to be; returns the object's metadata.

        Server-side apply leaves what others added beside it.
        """
        kind, metadata = BY_NAME[body["kind"]], body["metadata"]
        value: Any = body
        for name in path:
            value = value[name]
        return await self._request(
            "patch",
            kind.path(metadata.get("namespace"), metadata["name"]),
            body=[{"op": "replace", "path": "/" + "/".join(path), "value": value}],
            content_type="application/json-patch+json",
            header_params={"Accept": _ONE_METADATA_ONLY},
            field_manager=manager,
        )

    async def annotate(self, kind: Kind, namespace: str, name: str, values: Body) -> Body:
        """Set annotations of an object, and leave its others."""
        return await self._request(
            "patch",
            kind.path(namespace, name),
            body={"metadata": {"annotations": values}},
            content_type="application/merge-patch+json",
            header_params={"Accept": _ONE_METADATA_ONLY},
        )

    async def create(self, kind: Kind, namespace: str, body: Body, *, is_kept: bool = True) -> Body:
        """Create an object, or only see what it would be."""
        dry_run = None if is_kept else "All"
        return await self._request("post", kind.path(namespace), body=body, dry_run=dry_run)

    async def replace(self, kind: Kind, namespace: str, name: str, body: Body) -> Body:
        """Replace an object of the version that the body has."""
        return await self._request("put", kind.path(namespace, name), body=body)

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Body | None:
        """An object, or None if there is none."""
        return await self._get(kind.path(namespace, name))

    async def get_metadata(self, kind: Kind, namespace: str, name: str) -> Body | None:
        """The metadata of an object alone, or None if there is none.

        Out of the API server's memory: what was changed a moment ago may not be in it.
        """
        headers = {"Accept": _ONE_METADATA_ONLY}
        path = kind.path(namespace, name)
        return await self._get(path, header_params=headers, resource_version="0")

    async def _get(self, path: str, **options: Any) -> Body | None:  # noqa: ANN401
        try:
            return await self._request("get", path, **options)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def names(
        self, kind: Kind, namespace: str | None, label_selector: str = ""
    ) -> set[tuple[str, str]]:
        """Namespace and name of all objects of a kind; only their metadata are read."""
        bodies = await self.metadata(kind, namespace, label_selector)
        metadata = [one["metadata"] for one in bodies]
        return {(one.get("namespace", ""), one["name"]) for one in metadata}

    async def metadata(
        self, kind: Kind, namespace: str | None, label_selector: str = ""
    ) -> list[Body]:
        """All objects of a kind, their metadata alone."""
        found: list[Body] = []
        more: str | None = None
        while True:
            answer = await self._request(
                "get",
                kind.path(namespace),
                label_selector=label_selector or None,
                header_params={"Accept": _METADATA_ONLY},
                limit=500,
                _continue=more,
            )
            found += answer.get("items") or ()
            more = answer.get("metadata", {}).get("continue")
            if not more:
                return found

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str | None = None) -> None:
        """Delete an object, of this uid if one is given; none there is fine."""
        body: Body = {"propagationPolicy": "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            await self._request("delete", kind.path(namespace, name), body=body)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    async def post_event(self, body: Body) -> None:
        """Write an event; one that cannot be written is no reason to stop."""
        try:
            await self.create(EVENTS, body["metadata"]["namespace"], body)
        except ApiError:
            return

    async def _request(self, method: str, path: str, **options: Any) -> Body:  # noqa: ANN401
        try:
            answer = await self._dynamic.request(
                method,
                path,
                serialize=False,
                query_params=[],  # the client's default is one list that all requests share
                header_params=options.pop("header_params", {}),
                _request_timeout=_TIMEOUT_SECONDS,
                **options,
            )
            content = await answer.read()
        except ApiException as error:
            raise _error(method, path, error) from error
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            message = f"{method.upper()} {path}: the API server was not reached: {error!r}"
            raise RetryableError(message) from error
        found: Body = msgspec.json.decode(content)
        return found


async def _configure(settings: client.Configuration) -> None:
    try:
        config.load_incluster_config(  # type: ignore[no-untyped-call]
            client_configuration=settings
        )
    except config.ConfigException:
        await config.load_kube_config(  # type: ignore[no-untyped-call]
            client_configuration=settings
        )


def _error(method: str, path: str, error: ApiException) -> ApiError:
    status, message = int(error.status or 0), _message(error)
    text = f"{method.upper()} {path}: {status} {message}"
    if f"/{SERVICES.plural}/" in path and _OLDER_KIND in message:
        text += (
            "; the cluster's InferenceService is older than this operator:"
            " `kubectl apply --server-side -f manifests/crds` brings it up to date"
        )
    if status in _RETRYABLE and _PERMANENT_500 not in message:
        return RetryableError(text, status, message)
    return ApiError(text, status, message)


def _message(error: ApiException) -> str:
    """What the API server said; its whole answer has thousands of characters."""
    try:
        found: Mapping[str, Any] = json.loads(error.body or "")
    except (TypeError, ValueError):
        return str(error.reason)
    return str(found.get("message", error.reason))[:500]
