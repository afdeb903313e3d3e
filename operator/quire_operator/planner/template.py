"""Which pod template a Deployment has.

Engines are restarted when the user changes what their pods are made of, and never because the
operator was upgraded: what a newer operator would make differently waits for the next change, or
for a request to restart. So a Deployment keeps its template, as it was made, beside a hash of what
the user had chosen then.
"""

import hashlib
import json
from typing import Any

from msgspec import to_builtins

from quire_operator.planner.engine_pod import pod_template
from quire_operator.planner.names import RESTART_ANNOTATION
from quire_operator.planner.observed import Deployment
from quire_operator.planner.settings import PlannerSettings
from quire_operator.resource.accelerator import Accelerator
from quire_operator.resource.reading import InferenceService

_NO_POD_INPUTS = ("costPerHour", "minReplicas", "maxReplicas", "provisionTimeout")
"""Fields of an accelerator that its pods are not made of."""


def template_of(
    service: InferenceService,
    accelerator: Accelerator,
    settings: PlannerSettings,
    current: Deployment | None,
    *,
    is_held: bool = False,
) -> tuple[dict[str, Any], str]:
    """The template and the hash of its inputs.

    Parameters
    ----------
    is_held
        Keep what there is, though something else is asked for: it is known not to work.
    """
    inputs = inputs_hash(service, accelerator)
    kept = kept_template(current) if current is not None else None
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


def kept_template(current: Deployment) -> dict[str, Any] | None:
    """The template that a Deployment has; None if somebody spoilt the annotation."""
    try:
        template = json.loads(current.template)
    except ValueError:
        return None
    return template if isinstance(template, dict) and "spec" in template else None
