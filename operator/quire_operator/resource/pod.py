"""What an accelerator may change of its engine pods."""

from typing import Annotated, Any

from msgspec import Meta, field

from quire_operator.resource.base import Part
from quire_operator.resource.kinds import (
    Annotations,
    Image,
    Labels,
    LabelValue,
    Name,
    ObjectName,
    Quantities,
    Seconds,
)
from quire_operator.resource.rules import Rule, validations


class SecretName(Part, frozen=True, kw_only=True):
    """A Secret in the same namespace."""

    name: ObjectName
    """Name of the Secret."""


class Toleration(Part, frozen=True, kw_only=True):
    """A taint that the pods may stand."""

    key: Annotated[str, Meta(max_length=317)] = ""
    """Key of the taint; empty with operator Exists is every taint."""
    operator: Annotated[str, Meta(max_length=16, pattern="^(Exists|Equal)$")] = "Equal"
    """Exists or Equal."""
    value: LabelValue = ""
    """Value of the taint, with Equal."""
    effect: Annotated[
        str, Meta(max_length=32, pattern="^(|NoSchedule|PreferNoSchedule|NoExecute)$")
    ] = ""
    """NoSchedule, PreferNoSchedule or NoExecute; empty is all."""
    toleration_seconds: Seconds | None = None
    """How long a NoExecute taint is stood; default: for ever."""


class Resources(Part, frozen=True, kw_only=True):
    """What a pod asks for, besides its GPUs."""

    requests: Quantities = field(default_factory=dict)
    """What the node keeps free for it, such as {cpu: "4", memory: 16Gi}."""
    limits: Quantities = field(default_factory=dict)
    """What it may use at most."""


class EnvironmentVariable(Part, frozen=True, kw_only=True):
    """An environment variable of the engine."""

    rules = (
        Rule("!(has(self.value) && has(self.valueFrom))", "give value or valueFrom, not both"),
    )

    name: Annotated[str, Meta(min_length=1, max_length=253, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """Its name."""
    value: Annotated[str, Meta(max_length=4096)] | None = None
    """Its value."""
    value_from: (
        Annotated[
            dict[str, Any], Meta(extra_json_schema={"x-kubernetes-preserve-unknown-fields": True})
        ]
        | None
    ) = None
    """Where its value is, as in pods: secretKeyRef, configMapKeyRef, fieldRef."""


_FORBIDDEN = "nvidia.com/gpu is set from the accelerator's count: leave it out"


class PodOverrides(Part, frozen=True, kw_only=True):
    """Changes to the engine pods of one accelerator."""

    rules = (
        Rule(
            "!has(self.resources) || ((!has(self.resources.requests)"
            " || !('nvidia.com/gpu' in self.resources.requests)) &&"
            " (!has(self.resources.limits) || !('nvidia.com/gpu' in self.resources.limits)))",
            _FORBIDDEN,
            ".resources",
        ),
    )

    tolerations: Annotated[
        tuple[Toleration, ...],
        Meta(max_length=16, extra_json_schema={"x-kubernetes-list-type": "atomic"}),
    ] = ()
    """Taints that the pods may stand, besides nvidia.com/gpu."""
    node_selector: Labels = field(default_factory=dict)
    """Labels that their nodes must have, besides the accelerator's products."""
    resources: Resources = Resources()
    """CPU and memory."""
    env: Annotated[
        tuple[EnvironmentVariable, ...],
        Meta(
            max_length=64,
            extra_json_schema={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
        ),
    ] = ()
    """Environment variables of the engine."""
    image: Image = ""
    """Image of the engine; default: the operator's."""
    image_pull_secrets: Annotated[
        tuple[SecretName, ...],
        Meta(max_length=8, extra_json_schema={"x-kubernetes-list-type": "atomic"}),
    ] = ()
    """Secrets to pull the image with."""
    runtime_class_name: ObjectName | None = None
    """RuntimeClass of the pods, such as nvidia."""
    priority_class_name: ObjectName | None = None
    """PriorityClass of the pods."""
    scheduler_name: Name | None = None
    """Scheduler of the pods; default: the cluster's."""
    labels: Annotated[
        Labels,
        Meta(
            extra_json_schema=validations(
                Rule(
                    "self.all(k, !k.startsWith('app.kubernetes.io/')"
                    " && !k.startsWith('serving.quire.dev/'))",
                    "app.kubernetes.io/ and serving.quire.dev/ labels are quire's own:"
                    " leave them out",
                )
            )
        ),
    ] = field(default_factory=dict)
    """More labels of the pods."""
    annotations: Annotations = field(default_factory=dict)
    """More annotations of the pods."""
