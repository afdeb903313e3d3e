"""The samples of manifests/, with what a cluster without real GPUs and a network needs."""

from pathlib import Path
from typing import Any

import yaml

from hack.cluster.catalogue import PROJECT
from tests.nodes.services import MODEL

Body = dict[str, Any]

MANIFESTS = PROJECT / "manifests"
SIMULATED: Body = {
    "accelerators": [
        {"name": name, "simulate": {"gpu": name, "modelShape": MODEL}} for name in ("l4", "h100")
    ]
}
"""Added to a service: its engines hold GPUs, and only simulate their work."""


def sample(name: str, namespace: str, **more: Any) -> list[Body]:
    """Objects of a sample, with more in the spec of its service.

    What is more is put into what there is: mappings key by key, lists of things by their names.
    """
    found = []
    path: Path = MANIFESTS / "samples" / f"{name}.yaml"
    for body in yaml.safe_load_all(path.read_text()):
        body["metadata"]["namespace"] = namespace
        if body["kind"] == "InferenceService":
            body["spec"] = merged(body["spec"], more)
        found.append(body)
    return found


def merged(old: Any, new: Any) -> Any:
    """One value with another one in it."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {key: merged(old.get(key), value) for key, value in new.items()}
    if isinstance(old, list) and isinstance(new, list):
        by_name = {one["name"]: one for one in new}
        known = {one["name"] for one in old}
        changed = [merged(one, by_name.get(one["name"], {})) for one in old]
        return changed + [one for one in new if one["name"] not in known]
    return new
