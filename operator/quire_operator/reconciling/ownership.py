"""Whose an object is: what others made is not written over, and so not deleted with a service.

Names are made of the service's: one that another service or a person uses already may be wanted.
"""

from collections.abc import Mapping
from typing import Any

from quire_operator.cluster.kinds import SERVICES
from quire_operator.cluster.store import Store, service_of
from quire_operator.planner.names import MANAGED_BY_LABEL, MANAGER
from quire_operator.resource.crd import KIND
from quire_operator.resource.reading import InferenceService

OURS_ALONE = {
    "Deployment": ("spec", "template", "spec"),
    "Ingress": ("spec",),
    "PodDisruptionBudget": ("spec",),
    "Service": ("spec",),
}
"""What nobody adds to, such as a container or a selector: where it is in an object, by kind."""


def owner_beside(body: Mapping[str, Any], service: InferenceService, store: Store) -> str | None:
    """Whose an object is that has a name which this service needs; None if it is the service's.

    Without an owner, or with one that is gone, our labels tell: so it is after a backup was played
    back, and while the parts of a deleted service of the same name are still there.
    """
    metadata = body["metadata"]
    owners = metadata.get("ownerReferences") or ()
    controller = next((one for one in owners if one.get("controller")), None)
    if controller is not None:
        if controller["uid"] == service.uid:
            return None
        if controller["kind"] != KIND or _lives(controller, metadata, store):
            return f"{controller['kind']} {controller['name']}"
    labels = metadata.get("labels") or {}
    is_labelled = labels.get(MANAGED_BY_LABEL) == MANAGER and service_of(body) == service.key
    return None if is_labelled else "somebody else"


def _lives(owner: Mapping[str, Any], metadata: Mapping[str, Any], store: Store) -> bool:
    found = store.get(SERVICES.kind, (metadata.get("namespace", ""), owner["name"]))
    return found is not None and found["metadata"].get("uid") == owner["uid"]


def part_of_others(kind: str, metadata: Mapping[str, Any]) -> bool:
    """Whether others added to the part of an object that is the operator's alone.

    Annotations of a Deployment's pods are theirs to add: `kubectl rollout restart` does.
    """
    return any(
        _has(entry.get("fieldsV1") or {}, OURS_ALONE[kind])
        for entry in metadata.get("managedFields") or ()
        if entry.get("manager") != MANAGER and not entry.get("subresource")
    )


def _has(fields: Mapping[str, Any], part: tuple[str, ...]) -> bool:
    for name in part:
        if f"f:{name}" not in fields:
            return False
        fields = fields[f"f:{name}"]
    return True
