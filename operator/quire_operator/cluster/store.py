"""What has been seen of the cluster: trimmed bodies, by kind and name.

Watches fill it; planning reads it. It never asks the API server, and forgets what a watch did not
tell was gone only when a list says so.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from quire_operator.cluster.kinds import DEPLOYMENTS, PODS, SERVICES
from quire_operator.planner.names import SERVICE_LABEL

Body = Mapping[str, Any]
Key = tuple[str, str]
"""Namespace and name."""
Mark = tuple[str, int]
"""Equal while an object is as it was applied, in one process."""

_BY_ITS_CONTROLLER = "deployment.kubernetes.io/"
_SPEC_OF_DEPLOYMENTS = ("replicas", "strategy", "template")
_STATUS_OF_PODS = ("conditions", "containerStatuses", "phase", "podIP")


class Store:
    """Bodies of objects by kind and key."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen_at: dict[Key, float] = {}
        """When each service was seen first."""
        self._bodies: dict[str, dict[Key, Body]] = defaultdict(dict)
        self._parts: dict[str, dict[Key, set[Key]]] = defaultdict(lambda: defaultdict(set))
        self._of_none: dict[str, set[Key]] = defaultdict(set)

    def put(self, kind: str, body: Body) -> bool:
        """Note an object; whether anything that is kept has changed."""
        key, kept = key_of(body), trim(kind, body)
        before = self._bodies[kind].get(key)
        if before == kept:
            return False
        if before is not None:
            self._leave(kind, key, before)  # somebody may have changed its label
        self._bodies[kind][key] = kept
        if kind == SERVICES.kind:
            self._seen_at.setdefault(key, self._clock())
        if owner := service_of(kept):
            self._parts[kind][owner].add(key)
        else:
            self._of_none[kind].add(key)
        return True

    def drop(self, kind: str, key: Key) -> bool:
        """Forget an object; whether it was known."""
        body = self._bodies[kind].pop(key, None)
        if body is None:
            return False
        self._leave(kind, key, body)
        if kind == SERVICES.kind:
            self._seen_at.pop(key, None)
        return True

    def _leave(self, kind: str, key: Key, body: Body) -> None:
        """Take an object from its service's parts."""
        self._of_none[kind].discard(key)
        if owner := service_of(body):
            parts = self._parts[kind]
            parts[owner].discard(key)
            if not parts[owner]:
                del parts[owner]

    def keep_only(self, kind: str, keys: Iterable[Key]) -> list[Body]:
        """Forget all objects that a list did not have; returns them."""
        wanted = set(keys)
        gone = [key for key in self._bodies[kind] if key not in wanted]
        bodies = [self._bodies[kind][key] for key in gone]
        for key in gone:
            self.drop(kind, key)
        return bodies

    def get(self, kind: str, key: Key) -> Body | None:
        """One object."""
        return self._bodies[kind].get(key)

    def seen_at(self, service: Key) -> float:
        """When a service was seen first, on the store's clock; now, for one that is not known."""
        return self._seen_at.get(service, self._clock())

    def all(self, kind: str) -> list[Body]:
        """All objects of a kind."""
        return list(self._bodies[kind].values())

    def keys(self, kind: str) -> list[Key]:
        """All keys of a kind."""
        return list(self._bodies[kind])

    def parts(self, kind: str, service: Key) -> list[Body]:
        """The objects of a kind that belong to a service."""
        return [self._bodies[kind][key] for key in self._parts[kind].get(service, ())]

    def parts_of_none(self, kind: str) -> list[Body]:
        """The objects of a kind that belong to no service."""
        return [self._bodies[kind][key] for key in self._of_none[kind]]


def key_of(body: Body) -> Key:
    """Namespace and name of an object."""
    metadata = body["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def service_of(body: Body) -> Key | None:
    """The service that an object belongs to, by its label."""
    metadata = body["metadata"]
    name = (metadata.get("labels") or {}).get(SERVICE_LABEL)
    return (metadata.get("namespace", ""), name) if name else None


def mark_of(body: Body) -> Mark:
    """Changes when somebody changes what an object should be, not when its status changes.

    Generations tell of the spec alone, so labels, annotations and owners are looked at besides.
    """
    metadata = body["metadata"]
    version = str(metadata.get("generation") or metadata.get("resourceVersion", ""))
    annotations = metadata.get("annotations") or {}
    more = (
        frozenset((metadata.get("labels") or {}).items()),
        frozenset(one for one in annotations.items() if not one[0].startswith(_BY_ITS_CONTROLLER)),
        frozenset(one.get("uid") for one in metadata.get("ownerReferences") or ()),
    )
    return version, hash(more)


def trim(kind: str, body: Body) -> Body:
    """What planning needs of an object; the rest would fill the memory."""
    metadata = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    if kind == SERVICES.kind:
        metadata.pop("resourceVersion", None)  # or each write of the status would seem a change
        return {
            "apiVersion": body.get("apiVersion"),
            "kind": body.get("kind"),
            "metadata": metadata,
            "spec": body.get("spec", {}),
            "status": body.get("status", {}),
        }
    if kind == PODS.kind:
        status = body.get("status", {})
        metadata.pop("resourceVersion", None)
        metadata.pop("annotations", None)
        return {
            "metadata": metadata,
            "spec": {"nodeName": body.get("spec", {}).get("nodeName", "")},
            "status": {name: status[name] for name in _STATUS_OF_PODS if name in status},
        }
    if kind == DEPLOYMENTS.kind:
        spec = body.get("spec", {})
        metadata.pop("resourceVersion", None)
        kept = {name: spec[name] for name in _SPEC_OF_DEPLOYMENTS if name in spec}
        return {"metadata": metadata, "spec": kept, "status": body.get("status", {})}
    if kind == "Node":
        return _trim_node(metadata, body)
    return {"metadata": metadata}


def _trim_node(metadata: dict[str, Any], body: Body) -> Body:
    """Without the heartbeat's times, which change all the time."""
    status = body.get("status", {})
    conditions = [
        {"type": one["type"], "status": one["status"]}
        for one in status.get("conditions", [])
        if one["type"] == "Ready"
    ]
    kept = ("name", "labels", "creationTimestamp")
    return {
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        "spec": {
            "unschedulable": body.get("spec", {}).get("unschedulable", False),
            "taints": [
                {name: one[name] for name in ("key", "value", "effect") if name in one}
                for one in body.get("spec", {}).get("taints") or ()
            ],
        },
        "status": {"conditions": conditions, "allocatable": status.get("allocatable", {})},
    }
