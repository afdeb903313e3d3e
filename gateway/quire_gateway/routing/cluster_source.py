"""Routing documents from a cluster: the operator's objects and the EndpointSlices, watched.

Nothing else is read, so that is all that a gateway may do there: see `quire_gateway.rbac`.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import chain

import yaml
from kubernetes.aio import client, config

from quire_gateway.errors import SettingsError
from quire_gateway.routing.cluster_objects import (
    MAPS_SELECTOR,
    SLICES_SELECTOR,
    DocumentReader,
    Placing,
)
from quire_gateway.routing.document import RoutingDocument
from quire_gateway.routing.reflector import Body, Key, ListCall, Reflector

_SETTLE_SECONDS = 0.05
"""Changes that come together are put in force together."""

# what the client raises for a kubeconfig that is none, by what is wrong with it
_UNREADABLE = (config.ConfigException, yaml.YAMLError, OSError, TypeError)

_log = logging.getLogger(__name__)


class ClusterSource:
    """Documents of all services of a cluster, or of some of its namespaces.

    Parameters
    ----------
    namespaces
        Where services are looked for; none: everywhere.
    chance
        A number from 0 to below 1, evenly.
    """

    def __init__(
        self, api: client.ApiClient, namespaces: Sequence[str], chance: Callable[[], float]
    ) -> None:
        self.documents: tuple[RoutingDocument, ...] = ()
        self._api = api
        self._reader = DocumentReader()
        self._placing = Placing()
        self._changed = asyncio.Event()
        self._told: dict[Key, str] = {}
        core, discovery = client.CoreV1Api(api), client.DiscoveryV1Api(api)
        maps = _calls(core, "config_map", namespaces)
        slices = _calls(discovery, "endpoint_slice", namespaces)
        self._maps = [self._reflect("ConfigMaps", MAPS_SELECTOR, one, chance) for one in maps]
        self._slices = [
            self._reflect("EndpointSlices", SLICES_SELECTOR, one, chance) for one in slices
        ]

    @classmethod
    async def connect(
        cls, namespaces: Sequence[str], chance: Callable[[], float]
    ) -> "ClusterSource":
        """Find the API server as a pod's service account, or as the kubeconfig says.

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
                f"no cluster to watch: {error}; set KUBECONFIG to a file with a current context,"
                " run in a pod with a service account, or name a file by --routing"
            ) from error
        settings.connection_pool_maxsize = 0  # watches keep theirs: no limit
        return cls(client.ApiClient(configuration=settings), namespaces, chance)

    @property
    def is_complete(self) -> bool:
        """Whether all that there is has been seen once."""
        return all(one.is_listed for one in self._reflectors)

    @property
    def is_stale(self) -> bool:
        """Whether a document cannot be used, and an older one is in force, or none."""
        return bool(self._reader.problems)

    @property
    def problem(self) -> str:
        """Why what is in force may be old; empty while it is not."""
        return next((one.problem for one in self._reflectors if one.problem), "")

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Watch until cancelled; `on_change` is called when there are other documents."""
        async with asyncio.TaskGroup() as group:
            for one in self._reflectors:
                group.create_task(one.run())
            while True:
                await self._changed.wait()
                await asyncio.sleep(_SETTLE_SECONDS)
                self._changed.clear()
                if self.is_complete:
                    self._compose()
                on_change()

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()  # type: ignore[no-untyped-call]

    @property
    def _reflectors(self) -> list[Reflector]:
        return [*self._maps, *self._slices]

    def _reflect(
        self, what: str, selector: str, call: ListCall, chance: Callable[[], float]
    ) -> Reflector:
        return Reflector(what, call, selector, on_change=self._changed.set, chance=chance)

    def _compose(self) -> None:
        maps: dict[Key, Body] = {}
        for one in self._maps:
            maps |= one.objects
        documents = self._reader.read(maps)
        slices = chain.from_iterable(one.objects.values() for one in self._slices)
        self.documents = self._placing.place(documents, slices)
        problems = self._reader.problems
        for key, problem in problems.items():
            if self._told.get(key) != problem:
                _log.error("ConfigMap %s/%s: routing stays as it was: %s", *key, problem)
        self._told = dict(problems)


def _calls(api: object, kind: str, namespaces: Sequence[str]) -> list[ListCall]:
    """Return what lists a kind, once for each namespace."""
    raw = "without_preload_content"
    if not namespaces:
        call: ListCall = getattr(api, f"list_{kind}_for_all_namespaces_{raw}")
        return [call]
    return [_in_namespace(getattr(api, f"list_namespaced_{kind}_{raw}"), n) for n in namespaces]


def _in_namespace(call: Callable[..., object], namespace: str) -> ListCall:
    return lambda **options: call(namespace, **options)  # type: ignore[return-value]


async def _configure(settings: client.Configuration) -> None:
    try:
        config.load_incluster_config(  # type: ignore[no-untyped-call]
            client_configuration=settings
        )
    except config.ConfigException:
        await config.load_kube_config(  # type: ignore[no-untyped-call]
            client_configuration=settings
        )
