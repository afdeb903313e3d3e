"""Which pod template a Deployment has.

Engines are restarted when the user changes what their pods are made of, and never because the
operator was upgraded: what a newer operator would make differently waits for the next change, or
for a request to restart. So a Deployment keeps its template, as it was made, beside a hash of what
the user had chosen then, and a seal: who may only annotate Deployments must not choose what runs.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins

from quire_operator.planner.engine_pod import pod_template
from quire_operator.planner.names import (
    INPUTS_ANNOTATION,
    RESTART_ANNOTATION,
    SEAL_ANNOTATION,
    TEMPLATE_ANNOTATION,
)
from quire_operator.planner.observed import Deployment, Observed
from quire_operator.planner.settings import PlannerSettings
from quire_operator.planner.unsealed import is_as_annotated
from quire_operator.resource.accelerator import Accelerator
from quire_operator.resource.reading import InferenceService

_NO_POD_INPUTS = ("costPerHour", "minReplicas", "maxReplicas", "provisionTimeout")
"""Fields of an accelerator that its pods are not made of."""


def template_of(
    observed: Observed,
    accelerator: Accelerator,
    settings: PlannerSettings,
    *,
    is_held: bool = False,
) -> tuple[dict[str, Any], str]:
    """The template and the hash of its inputs.

    Parameters
    ----------
    is_held
        Keep what there is, though something else is asked for: it is known not to work.
    """
    service, current = observed.service, observed.deployments.get(accelerator.name)
    inputs = inputs_hash(service, accelerator)
    kept = kept_template(observed, current) if current is not None else None
    if current is not None and kept is not None and (is_held or current.inputs_hash == inputs):
        return kept, current.inputs_hash
    return pod_template(service, accelerator, settings), inputs


def inputs_hash(service: InferenceService, accelerator: Accelerator) -> str:
    """Changes with everything of the spec that the pods are made of, and with nothing else."""
    chosen = to_builtins(accelerator)
    inputs = {
        "served_name": service.served_name,
        "model": to_builtins(service.spec.model),
        "engine": to_builtins(service.spec.engine),
        "accelerator": {
            name: value for name, value in chosen.items() if name not in _NO_POD_INPUTS
        },
        "restart": service.annotations.get(RESTART_ANNOTATION, ""),
    }
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def kept_template(observed: Observed, current: Deployment) -> dict[str, Any] | None:
    """The template that a Deployment was made with; None if somebody spoilt the annotations."""
    seal = _seal(observed, current.accelerator, current.inputs_hash, current.template)
    is_sealed = hmac.compare_digest(seal.encode(), current.seal.encode())
    if not is_sealed and not is_as_annotated(current.template, current.live_template):
        return None
    template: dict[str, Any] = json.loads(current.template)
    return template


def template_annotations(
    observed: Observed, accelerator: str, template: Mapping[str, Any], inputs: str
) -> dict[str, str]:
    """What a Deployment keeps of its template."""
    text = json.dumps(template, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return {
        INPUTS_ANNOTATION: inputs,
        TEMPLATE_ANNOTATION: text,
        SEAL_ANNOTATION: _seal(observed, accelerator, inputs, text),
    }


def _seal(observed: Observed, accelerator: str, inputs: str, template: str) -> str:
    """Whoever does not know the root secret cannot make it."""
    parts = ("pod-template", *observed.service.key, accelerator, inputs, template)
    text = json.dumps(parts).encode()
    return hmac.digest(observed.root_secret, text, "sha256").hex()[:32]
