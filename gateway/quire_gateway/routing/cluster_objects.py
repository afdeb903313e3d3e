"""From objects of a cluster to routing documents that say where engines are. Pure.

    ConfigMap   role=routing     the operator's document of a service
    EndpointSlice role=engines   of the headless Service of its engines: the cluster keeps it
    EndpointSlice role=entrance  the gateways themselves, as the operator lists them for ingresses

An engine that is not ready in the cluster's eyes stays in the table: its own state says more, and
sooner, of whether it takes requests. One that is terminating gets no new ones.
"""

import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from operator import is_
from typing import Any

import msgspec

from quire_gateway.errors import RoutingError
from quire_gateway.routing.document import EnginePlace, RoutingDocument, read_documents

Body = Mapping[str, Any]
Key = tuple[str, str]

ROUTING_KEY = "routing.json"
OPERATOR = "quire-operator"
SERVICE_LABEL = "serving.quire.dev/service"
ROLE_LABEL = "serving.quire.dev/role"
MAPS_SELECTOR = f"{ROLE_LABEL}=routing,app.kubernetes.io/managed-by={OPERATOR}"
SLICES_SELECTOR = f"{ROLE_LABEL} in (engines,entrance)"
_SLICE_SERVICE = "kubernetes.io/service-name"
_SLICE_MANAGER = "endpointslice.kubernetes.io/managed-by"
_POD_NAME_CUT = 58
"""Characters that the API server leaves of DEPLOYMENT-HASH- before it adds five of chance."""


class DocumentReader:
    """Reads documents; of one that cannot be used, what was read last stays."""

    def __init__(self) -> None:
        self._texts: dict[Key, str] = {}
        self._good: dict[Key, RoutingDocument] = {}
        self.problems: dict[Key, str] = {}
        """What is wrong, by the object's namespace and name."""

    def read(self, maps: Mapping[Key, Body]) -> list[RoutingDocument]:
        """Return the documents that are in force, those of the oldest objects first."""
        for key in self._texts.keys() - maps.keys():
            del self._texts[key]
            self._good.pop(key, None)
            self.problems.pop(key, None)
        for key, body in maps.items():
            text = str((body.get("data") or {}).get(ROUTING_KEY, ""))
            if self._texts.get(key) != text:
                self._texts[key] = text
                self._read_one(key, body, text)
        oldest = sorted(self._good, key=lambda key: (_made_at(maps[key]), key))
        return [self._good[key] for key in oldest]

    def _read_one(self, key: Key, body: Body, text: str) -> None:
        try:
            labels = body["metadata"].get("labels") or {}
            document = _only(text, of=(key[0], labels.get(SERVICE_LABEL, "")))
        except RoutingError as error:
            self.problems[key] = str(error)
        else:
            self.problems.pop(key, None)
            self._good[key] = _no_older(document, _made_at(body))


class Placing:
    """Says in documents where their engines are, and how many gateways there are.

    Of a service of which nothing has changed the same object is returned: a change of one service
    among hundreds costs no more than that.
    """

    def __init__(self) -> None:
        self._known: dict[Key, tuple[list[object], RoutingDocument]] = {}
        """What a document was made from, by service."""

    def place(
        self, documents: Iterable[RoutingDocument], slices: Iterable[Body]
    ) -> tuple[RoutingDocument, ...]:
        """Return the documents with their engines.

        Parameters
        ----------
        slices
            Those that have not changed are the same objects as before.
        """
        by_service: dict[Key, list[Body]] = defaultdict(list)
        for body in slices:
            metadata = body["metadata"]
            service = (metadata.get("labels") or {}).get(_SLICE_SERVICE, "")
            by_service[metadata.get("namespace", ""), service].append(body)
        known, self._known = self._known, {}
        for one in documents:
            engines = by_service.get((one.namespace, one.engines_service), [])
            gateways = by_service.get((one.namespace, one.name), [])
            source: list[object] = [one, *engines, None, *gateways]
            before = known.get(one.key)
            if before is None or not _are_same(before[0], source):
                before = source, _place(one, engines, gateways)
            self._known[one.key] = before
        return tuple(document for _, document in self._known.values())


def _are_same(some: list[object], others: list[object]) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))


def _place(
    document: RoutingDocument, engines: Iterable[Body], gateways: Iterable[Body]
) -> RoutingDocument:
    return msgspec.structs.replace(
        document, engines=_engines(document, engines), num_gateways=_count_gateways(gateways)
    )


def _only(text: str, *, of: Key) -> RoutingDocument:
    """Read the document of one service: nobody speaks for the services of other namespaces."""
    documents = read_documents(text.encode())
    if len(documents) != 1:
        raise RoutingError(f"it has {len(documents)} documents, not one")
    if documents[0].key != of:
        other = "/".join(documents[0].key)
        raise RoutingError(f"it is of {other}, which is not the service of its object")
    return documents[0]


def _made_at(body: Body) -> str:
    return str(body["metadata"].get("creationTimestamp", ""))


def _no_older(document: RoutingDocument, made_at: str) -> RoutingDocument:
    """With no claim from before its object was made: whoever may write objects dates nothing back.

    An operator that tells of no claims made the object when the service wanted its names.
    """
    try:
        made = datetime.fromisoformat(made_at.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return document
    claims = {
        name: max(document.claimed(name, at_host=False), made) for name in document.model_names
    }
    return msgspec.structs.replace(document, claimed_at=claims)


def _engines(document: RoutingDocument, slices: Iterable[Body]) -> tuple[EnginePlace, ...]:
    places: dict[str, EnginePlace] = {}
    pods: set[str] = set()
    for body in sorted(slices, key=lambda one: str(one["metadata"]["name"])):
        port = _port(body, document.engine_port)
        for endpoint in body.get("endpoints") or ():
            address = _address(endpoint, port)
            pod = endpoint.get("targetRef") or {}
            if address is None or (address not in places and pod.get("uid") in pods):
                continue  # no address, or a pod's second one
            if pod.get("uid"):
                pods.add(pod["uid"])
            is_leaving = bool((endpoint.get("conditions") or {}).get("terminating"))
            if address in places and is_leaving:
                continue  # another slice is newer
            places[address] = EnginePlace(
                address=address,
                accelerator=_accelerator(document, str(pod.get("name", ""))),
                is_leaving=is_leaving,
            )
    return tuple(places.values())


def _address(endpoint: Mapping[str, Any], port: int) -> str | None:
    """Return host:port of an endpoint; None if its address is no number."""
    try:
        address = ipaddress.ip_address((endpoint.get("addresses") or [""])[0])
    except ValueError:
        return None
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def _port(body: Body, default: int) -> int:
    ports = [one for one in body.get("ports") or () if one.get("port")]
    named = [one for one in ports if one.get("name") == "http"] or ports
    return int(named[0]["port"]) if named else default


def _accelerator(document: RoutingDocument, pod: str) -> str:
    """Return the accelerator of a pod, whose Deployment is called SERVICE-ACCELERATOR.

    "" where it is none, or where the cluster has cut so much that it may be several.
    """
    starts = {
        one.name: f"{document.name}-{one.name}-"[:_POD_NAME_CUT] for one in document.accelerators
    }
    longest = max(filter(pod.startswith, starts.values()), key=len, default=None)
    fitting = [name for name, start in starts.items() if start == longest]
    return fitting[0] if len(fitting) == 1 else ""


def _count_gateways(slices: Iterable[Body]) -> int:
    """Return how many gateways are ready, of the family of addresses that has most; at least 1."""
    counts: dict[str, set[str]] = defaultdict(set)
    for body in slices:
        if (body["metadata"].get("labels") or {}).get(_SLICE_MANAGER) != OPERATOR:
            continue
        for endpoint in body.get("endpoints") or ():
            if (endpoint.get("conditions") or {}).get("ready", True):
                counts[str(body.get("addressType"))].update(endpoint.get("addresses") or ())
    return max((len(found) for found in counts.values()), default=0) or 1
