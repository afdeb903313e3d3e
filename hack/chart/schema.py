"""values.schema.json: types by the defaults, bounds and shapes by the table here.

Nothing is allowed that values.yaml does not have, so that a typo is refused by name.
"""

import json
from collections.abc import Sequence
from typing import Any

from hack.chart.values import Value

Schema = dict[str, Any]

_NAME = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAMES = rf"{_NAME}([.]{_NAME})*"
"""With dots between: of a Secret, an account, a domain."""


def _closed(properties: Schema, *required: str) -> Schema:
    schema = {"type": "object", "additionalProperties": False, "properties": properties}
    return schema | ({"required": list(required)} if required else {})


def _list_of(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def _one_of(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


_OBJECT: Schema = {"type": "object"}
_TEXT: Schema = {"type": "string"}
_MOST = 2**31 - 1
"""Of a whole number: what Kubernetes has 32 bits for, and seconds."""
_NUMBER: Schema = {"type": "integer"}
_COUNT: Schema = {"type": "integer", "minimum": 1, "maximum": _MOST}
_NOT_EMPTY: Schema = {"type": "string", "minLength": 1}
_TEXTS: Schema = {"type": "object", "additionalProperties": _TEXT}
_QUANTITIES: Schema = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}
_LABEL_OR_NONE: Schema = {"type": "string", "pattern": f"^({_NAME})?$", "maxLength": 63}
_NAME_OR_NONE: Schema = {"type": "string", "pattern": f"^({_NAMES})?$", "maxLength": 253}
_PLACE = "[A-Za-z0-9][-._A-Za-z0-9]*"
"""A part of an image's name."""
_REPOSITORY: Schema = {"type": "string", "pattern": f"^{_PLACE}(/{_PLACE})*$"}
_TOLERATION = _closed(
    {
        "key": _TEXT,
        "operator": _one_of("Exists", "Equal", "Lt", "Gt"),
        "value": _TEXT,
        "effect": _one_of("NoSchedule", "PreferNoSchedule", "NoExecute"),
        "tolerationSeconds": _NUMBER,
    }
)
_BY_KEY: dict[str, Schema] = {
    "affinity": _closed(dict.fromkeys(("nodeAffinity", "podAffinity", "podAntiAffinity"), _OBJECT)),
    "annotations": _TEXTS,
    "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "extraArgs": _list_of({"type": "string", "pattern": "^--"}),
    "extraEnv": _list_of(
        _closed({"name": _NOT_EMPTY, "value": _TEXT, "valueFrom": _OBJECT}, "name")
    ),
    "labels": _TEXTS,
    "nodeSelector": _TEXTS,
    "podAnnotations": _TEXTS,
    "podLabels": _TEXTS,
    "priorityClassName": _NAME_OR_NONE,
    "repository": {"type": "string", "pattern": f"^({_PLACE}(/{_PLACE})*)?$"},
    "resources": _closed(
        {"requests": _QUANTITIES, "limits": _QUANTITIES, "claims": _list_of(_OBJECT)}
    ),
    "tag": {"type": "string", "pattern": "^([_A-Za-z0-9][-._A-Za-z0-9]{0,127})?$"},
    "tolerations": _list_of(_TOLERATION),
}
"""By a value's last key, wherever it stands."""

_BY_NAME: dict[str, Schema] = {
    "clusterDomain": {"type": "string", "pattern": f"^{_NAMES}$"},
    "engine.image.repository": _REPOSITORY,
    "fullnameOverride": _LABEL_OR_NONE,
    "gateway.autoscaling.maxReplicas": _COUNT,
    "gateway.autoscaling.minReplicas": _COUNT,
    "gateway.autoscaling.targetCPUUtilizationPercentage": _COUNT,
    "gateway.extraVolumeMounts": _list_of(
        {"type": "object", "required": ["name", "mountPath"], "properties": {"name": _NOT_EMPTY}}
    ),
    "gateway.extraVolumes": _list_of(
        {"type": "object", "required": ["name"], "properties": {"name": _NOT_EMPTY}}
    ),
    "gateway.image.repository": _REPOSITORY,
    "gateway.proxiedHosts": {
        "type": "array",
        "uniqueItems": True,
        "items": {"type": "string", "pattern": f"^({_NAMES}|[*])$"},
    },
    "gateway.service.port": {"type": "integer", "minimum": 1, "maximum": 65535},
    "gateway.service.type": _one_of("ClusterIP", "NodePort", "LoadBalancer"),
    "gateway.serviceAccount.name": _NAME_OR_NONE,
    "gateway.tlsSecretName": _NAME_OR_NONE,
    "gateway.workers": {"type": "integer", "minimum": 1, "maximum": 64},
    "gatewayAPI.gatewayName": _NAME_OR_NONE,
    "gatewayAPI.gatewayNamespace": _LABEL_OR_NONE,
    "gatewayAPI.listener": _NAME_OR_NONE,
    "image.pullPolicy": _one_of("Always", "IfNotPresent", "Never"),
    "image.pullSecrets": _list_of(_closed({"name": _NAME_OR_NONE | {"minLength": 1}}, "name")),
    "logFormat": _one_of("json", "text"),
    "nameOverride": _LABEL_OR_NONE,
    "namespaces": {
        "type": "array",
        "uniqueItems": True,
        "items": {"type": "string", "pattern": f"^{_NAME}$", "maxLength": 63},
    },
    "networkPolicy.extraEgress": _list_of(
        _closed({"ports": _list_of(_OBJECT), "to": _list_of(_OBJECT)})
    ),
    "networkPolicy.extraIngress": _list_of(
        _closed({"ports": _list_of(_OBJECT), "from": _list_of(_OBJECT)})
    ),
    "networkPolicy.monitoringNamespace": _LABEL_OR_NONE | {"minLength": 1},
    "operator.image.repository": _REPOSITORY,
    "operator.scaleSeconds": {"type": "number", "minimum": 0},
    "operator.serviceAccount.name": _NAME_OR_NONE,
    # a date and a time may be written as one; what is more, a values file holds no longer exactly
    "operator.tokenEpoch": {"type": "integer", "minimum": 0, "maximum": 2**53 - 1},
    "podMonitors.interval": {"type": "string", "pattern": "^[1-9][0-9]*(ms|s|m|h)$"},
    "podSecurityContext": _OBJECT,
    "prometheusRule.docsURL": {"type": "string", "pattern": "^(https?://[^\\s'\"#$]+)?$"},
    "rootSecretName": _NAME_OR_NONE | {"minLength": 1},
    "securityContext": _OBJECT,
}


def schema_text(values: Sequence[Value]) -> str:
    """The file.

    Raises
    ------
    ValueError
        The table lacks the shape of a list or an object, or names a value that is not there.
    """
    if unknown := _BY_NAME.keys() - {one.name for one in values}:
        raise ValueError(f"values.yaml does not have {', '.join(sorted(unknown))}")
    root = _closed({"global": {"description": "Of a chart that this one is part of.", **_OBJECT}})
    for one in values:
        place = root
        for key in one.path[:-1]:
            place = place["properties"].setdefault(key, _closed({}))
        place["properties"][one.path[-1]] = {"description": one.description, **_shape(one)}
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "quire", **root}
    return json.dumps(schema, indent=2) + "\n"


def _shape(value: Value) -> Schema:
    if (found := _BY_NAME.get(value.name) or _BY_KEY.get(value.path[-1])) is not None:
        return found
    if isinstance(value.default, bool):
        return {"type": "boolean"}
    if isinstance(value.default, int):
        return {"type": "integer", "minimum": 0, "maximum": _MOST}
    if isinstance(value.default, str):
        return _TEXT
    raise ValueError(f"{value.name}: hack/chart/schema.py does not say what it may hold")
