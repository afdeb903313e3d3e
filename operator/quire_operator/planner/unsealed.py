"""Whether a Deployment's pods are as its annotation has them, by looking at both.

Versions before there were seals made Deployments without one, and another root secret makes other
seals. To make those templates anew would restart every engine at an upgrade; to believe them would
let everybody choose what runs who may annotate. So a template without a seal that fits counts where
the pods have it already, to the last field.
"""

import json
from collections.abc import Mapping
from typing import Any

_FILLED_IN = frozenset(
    (
        "apiVersion",
        "creationTimestamp",
        "defaultMode",
        "dnsPolicy",
        "failureThreshold",
        "imagePullPolicy",
        "optional",
        "periodSeconds",
        "procMount",
        "protocol",
        "restartPolicy",
        "schedulerName",
        "scheme",
        "serviceAccount",
        "successThreshold",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "timeoutSeconds",
    )
)
"""Fields to which the API server gives a value where there is none."""


def is_as_annotated(annotated: str, live: object) -> bool:
    """Whether a live pod template is what an annotation has, in JSON."""
    try:
        return _is_same(json.loads(annotated), live)
    except (ValueError, RecursionError):
        return False


def _is_same(made: object, live: Any) -> bool:  # noqa: ANN401
    if isinstance(made, Mapping):
        return (
            isinstance(live, Mapping)
            and made.keys() <= live.keys()
            and all(_is_same(value, live[name]) for name, value in made.items())
            and all(
                name in _FILLED_IN or live[name] in ({}, None) for name in live.keys() - made.keys()
            )
        )
    if isinstance(made, list):
        return isinstance(live, list) and len(made) == len(live) and all(map(_is_same, made, live))
    return bool(made == live)
