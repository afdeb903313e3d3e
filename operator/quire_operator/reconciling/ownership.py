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


def has_pods_of_others(metadata: Mapping[str, Any]) -> bool:
    """Whether others added to what a Deployment's pods are made of, such as a container.

    Annotations of the template are theirs to add: `kubectl rollout restart` does.
    """
    for entry in metadata.get("managedFields") or ():
        template = (entry.get("fieldsV1") or {}).get("f:spec", {}).get("f:template", {})
        if entry.get("manager") != MANAGER and "f:spec" in template:
            return True
    return False
