"""The CustomResourceDefinition of InferenceService, made from `spec` and `status`."""

from typing import Any

from quire_operator.resource.rules import Rule, validations
from quire_operator.resource.spec import InferenceServiceSpec
from quire_operator.resource.status import InferenceServiceStatus
from quire_operator.resource.structural import Schema, schema_of

GROUP = "serving.quire.dev"
VERSION = "v1alpha1"
KIND = "InferenceService"
PLURAL = "inferenceservices"
API_VERSION = f"{GROUP}/{VERSION}"
NAME = f"{PLURAL}.{GROUP}"
MAX_NAME_LENGTH = 40
"""Of a resource: names of its parts are made of its own and an accelerator's."""

_NAME_RULES = (
    Rule(
        f"size(self.metadata.name) <= {MAX_NAME_LENGTH}",
        f"metadata.name is too long: at most {MAX_NAME_LENGTH} characters, since names of"
        " Deployments and Services are made of it",
    ),
    Rule(
        "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "metadata.name must begin with a letter and have only small letters, digits and -,"
        " since a Service has it too",
    ),
)


def crd() -> dict[str, Any]:
    """The whole object, as it is applied."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["qis"],
                "categories": ["quire"],
            },
            "versions": [_version()],
        },
    }


def _version() -> dict[str, Any]:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _root()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "selectableFields": [{"jsonPath": ".spec.model.source"}],
        "additionalPrinterColumns": _columns(),
    }


def _root() -> Schema:
    return {
        "type": "object",
        "description": "A language model, served on the GPUs that there are.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"Always {API_VERSION}."},
            "kind": {"type": "string", "description": f"Always {KIND}."},
            "metadata": {"type": "object"},
            "spec": schema_of(InferenceServiceSpec),
            "status": schema_of(InferenceServiceStatus),
        },
        **validations(*_NAME_RULES),
    }


def _columns() -> list[dict[str, Any]]:
    ready = '.status.conditions[?(@.type=="Ready")]'
    return [
        _column("Model", ".status.model"),
        _column("Ready", f"{ready}.status"),
        _column("Desired", ".status.desiredReplicas", "integer"),
        _column("Available", ".status.readyReplicas", "integer"),
        _column("URL", ".status.url"),
        _column("Reason", f"{ready}.reason"),
        _column("Age", ".metadata.creationTimestamp", "date"),
        _column("Accelerators", ".status.readyOn", is_wide=True),
        _column("Blocks", ".status.blocksHeldPercent", "integer", is_wide=True),
        _column("Loading", ".status.loadingPercent", "integer", is_wide=True),
        _column("Tokens/s", ".status.tokensPerSecond", "integer", is_wide=True),
        _column("Cost", ".status.hourlyCost", is_wide=True),
    ]


def _column(name: str, path: str, kind: str = "string", *, is_wide: bool = False) -> dict[str, Any]:
    column = {"name": name, "type": kind, "jsonPath": path}
    return column | ({"priority": 1} if is_wide else {})
