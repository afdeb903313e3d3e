"""kopf's watches, which fill the store and the queue.

Only `on.event` handlers, which return nothing: so kopf writes no annotation and no finalizer on
anything. After a watch was cut, every object comes again, but what was deleted meanwhile does not:
such a repetition asks for a list, and so does a timer.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import kopf

from quire_operator.cluster.api import ClusterApi
from quire_operator.cluster.kept_nowhere import NoDiffs, NoProgress
from quire_operator.cluster.kinds import HTTP_ROUTES, MADE, NODES, PODS, SERVICES, Kind
from quire_operator.cluster.store import Key, Store, key_of, service_of
from quire_operator.errors import ApiError
from quire_operator.planner.names import MANAGED_BY_LABEL, MANAGER, ROLE_LABEL
from quire_operator.planner.settings import GatewayPlace

_log = logging.getLogger(__name__)

_MADE_SELECTOR = f"{MANAGED_BY_LABEL}={MANAGER}"
_POD_SELECTOR = f"{ROLE_LABEL} in (engine, gateway)"
_BACKOFFS = [0.5, 1.0, 2.0, *[3.0] * 600]
"""kopf ends when these are used up; half an hour without the API server's consent is enough."""


class Watching:
    """Which objects are watched, and what follows from a change.

    Parameters
    ----------
    doubt
        Have a service's Secret looked at, which is not watched: a pod that is made mounts it.
    """

    def __init__(
        self,
        store: Store,
        *,
        enqueue: Callable[[Key], None],
        doubt: Callable[[Key], None],
        namespaces: tuple[str, ...],
        may_see_nodes: bool,
        gateway: GatewayPlace | None,
        with_routes: bool,
    ) -> None:
        self._store = store
        self._enqueue = enqueue
        self._doubt = doubt
        self._namespaces = namespaces
        self._gateway = gateway
        made = [kind for kind in MADE if with_routes or kind is not HTTP_ROUTES]
        self._kinds = [SERVICES, PODS, *made] + ([NODES] if may_see_nodes else [])
        self._foreign = [SERVICES] + ([HTTP_ROUTES] if with_routes else [])
        self._relists: set[str] = set()
        self.relist_needed = asyncio.Event()
        self._is_listed = False

    def registry(self) -> kopf.OperatorRegistry:
        """The handlers, for `kopf.operator`."""
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(_login)
        for kind in self._kinds:
            group, _, version = kind.api_version.rpartition("/")
            handler = self._handler(kind)
            kopf.on.event(group, version, kind.plural, registry=registry, id=kind.kind)(handler)
        return registry

    def settings(self) -> kopf.OperatorSettings:
        """How kopf is to behave."""
        settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        settings.persistence.diffbase_storage = NoDiffs()
        settings.persistence.progress_storage = NoProgress()
        settings.scanning.disabled = True
        settings.networking.error_backoffs = _BACKOFFS
        settings.networking.connect_timeout = 3
        settings.networking.request_timeout = 10
        settings.watching.connect_timeout = 3
        settings.process.ultimate_exiting_timeout = None  # it is of no use in a container
        for kind in (PODS, *MADE):
            group, _, version = kind.api_version.rpartition("/")
            selector = _POD_SELECTOR if kind is PODS else _MADE_SELECTOR
            settings.watching.label_selectors[group, version, kind.plural] = selector
        logging.getLogger("kopf.objects").setLevel(logging.WARNING)
        return settings

    async def list_all(self, api: ClusterApi) -> None:
        """Drop what is not there any more, of all kinds.

        Raises
        ------
        ApiError
            The API server did not answer.
        """
        for kind in self._kinds:
            await self._list(api, kind)
        self._relists.clear()
        self._is_listed = True

    async def missing(self, api: ClusterApi) -> Kind | None:
        """A kind that the cluster lacks, of those that clusters come without; None: all are there.

        kopf never sees one that comes later.

        Raises
        ------
        ApiError
            The API server did not answer.
        """
        for kind in self._foreign:
            try:
                await self._find(api, kind)
            except ApiError as error:
                if error.status == 404:
                    return kind
                raise
        return None

    async def is_complete(self, api: ClusterApi) -> bool:
        """Whether the watches have brought every service that a list has.

        Raises
        ------
        ApiError
            The API server did not answer.
        """
        for kind in self._kinds:
            if not await self._find(api, kind) <= set(self._store.keys(kind.kind)):
                return False
        return True

    async def list_needed(self, api: ClusterApi) -> None:
        """Drop what is not there any more, of the kinds whose watch was cut.

        Raises
        ------
        ApiError
            The API server did not answer: what was not listed is still needed.
        """
        for kind in [one for one in self._kinds if one.kind in self._relists]:
            self._relists.discard(kind.kind)  # before: a cut meanwhile asks for another list
            try:
                await self._list(api, kind)
            except ApiError:
                self._relists.add(kind.kind)
                raise

    async def _list(self, api: ClusterApi, kind: Kind) -> None:
        known = set(self._store.keys(kind.kind))  # what a watch brings meanwhile stays
        found = await self._find(api, kind)
        for key in known - found:
            body = self._store.get(kind.kind, key)
            if body is not None and self._store.drop(kind.kind, key):
                self._changed(kind, body)

    async def _find(self, api: ClusterApi, kind: Kind) -> set[Key]:
        selector = ""
        if kind is PODS:
            selector = _POD_SELECTOR
        elif kind in MADE:
            selector = _MADE_SELECTOR
        scopes = self._namespaces if kind.is_namespaced and self._namespaces else (None,)
        found: set[Key] = set()
        for namespace in scopes:
            found |= await api.names(kind, namespace, selector)
        return found

    def _handler(self, kind: Kind) -> Callable[..., Any]:
        async def note(event: Mapping[str, Any], **_: object) -> None:
            body = event["object"]
            if event["type"] is None and self._is_listed:
                self._relists.add(kind.kind)
                self.relist_needed.set()
            before = self._store.get(kind.kind, key_of(body))
            if event["type"] == "DELETED":
                is_new = self._store.drop(kind.kind, key_of(body))
            else:
                is_new = self._store.put(kind.kind, body)
            if not is_new:
                return
            if kind is PODS and before is None and (owner := service_of(body)) is not None:
                self._doubt(owner)
            self._changed(kind, body)
            if before is not None and self._audience(kind, before) != self._audience(kind, body):
                self._changed(kind, before)  # those that it matters to no more

        return note

    def _changed(self, kind: Kind, body: Mapping[str, Any]) -> None:
        """Enqueue the services that an object matters to."""
        if kind is SERVICES:
            self._enqueue(key_of(body))
        elif (owner := service_of(body)) is not None:
            self._enqueue(owner)
        elif kind is NODES or (kind is PODS and self._is_of_gateway(body)):
            for key in self._store.keys(SERVICES.kind):
                self._enqueue(key)

    def _audience(self, kind: Kind, body: Mapping[str, Any]) -> object:
        """Equal for two states of an object that matter to the same services."""
        return service_of(body), kind is PODS and self._is_of_gateway(body)

    def _is_of_gateway(self, body: Mapping[str, Any]) -> bool:
        return self._gateway is not None and self._gateway.has(body["metadata"])


def _login(**arguments: Any) -> kopf.ConnectionInfo | None:  # noqa: ANN401
    return kopf.login_with_service_account(**arguments) or kopf.login_with_kubeconfig(**arguments)
