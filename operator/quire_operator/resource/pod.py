"""What an accelerator may change of its engine pods."""

from typing import Annotated

from msgspec import Meta, field

from quire_operator.resource.base import Part
from quire_operator.resource.kinds import (
    KEY,
    Annotations,
    Image,
    Labels,
    LabelValue,
    Name,
    ObjectName,
    Quantities,
    Quantity,
    Seconds,
    SecretKey,
)
from quire_operator.resource.rules import Rule, validations

OWNED_VARIABLES = ("HF_REVISION_PIN", "HOME", "QUIRE_CACHE")
"""Variables that the operator sets in every engine."""
_MOST_CHARACTERS = 32_768
"""Of all values: the template is kept in an annotation, and those have 256 KiB."""


class SecretName(Part, frozen=True, kw_only=True):
    """A Secret in the same namespace."""

    name: ObjectName
    """Name of the Secret."""


class Toleration(Part, frozen=True, kw_only=True):
    """A taint that the pods may stand."""

    rules = (
        Rule(
            "!has(self.operator) || self.operator != 'Exists' || !has(self.value)"
            " || self.value == ''",
            "operator Exists looks at no value: leave it out, or use Equal",
            ".value",
        ),
        Rule(
            "(has(self.operator) && self.operator == 'Exists')"
            " || (has(self.key) && self.key != '')",
            "key is needed with operator Equal; operator Exists alone is every taint",
            ".key",
        ),
        Rule(
            "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            "tolerationSeconds is for effect NoExecute alone",
            ".tolerationSeconds",
        ),
        Rule(
            "!has(self.key) || self.key == '' || (self.key.indexOf('/') <= 253"
            f" && self.key.matches('^{KEY}$'))",
            "key is no name of a taint, such as spot or example.com/spot",
            ".key",
        ),
    )

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

    rules = (
        Rule(
            "!has(self.requests) || !has(self.limits) || self.requests.all(k, !(k in self.limits)"
            " || quantity(string(self.requests[k])).compareTo(quantity(string(self.limits[k])))"
            " <= 0)",
            "a request is more than its limit: lower it, or raise the limit",
            ".requests",
        ),
        Rule(
            "!has(self.requests) || self.requests.all(k,"
            " !(k.contains('/') || k.startsWith('hugepages-'))"
            " || (has(self.limits) && k in self.limits && quantity(string(self.requests[k]))"
            ".compareTo(quantity(string(self.limits[k]))) == 0))",
            "what only one pod can have at a time, devices and huge pages, needs a limit that is"
            " its request: give the limit alone",
            ".requests",
        ),
    )

    requests: Quantities = field(default_factory=dict)
    """What the node keeps free for it, such as {cpu: "4", memory: 16Gi}."""
    limits: Quantities = field(default_factory=dict)
    """What it may use at most."""


class KeyReference(Part, frozen=True, kw_only=True):
    """A key of a Secret or ConfigMap."""

    name: ObjectName
    """Name of the object."""
    key: SecretKey
    """Key in its data."""
    optional: bool = False
    """Whether the variable is left out where there is none."""


class FieldReference(Part, frozen=True, kw_only=True):
    """A field of the pod."""

    rules = (
        Rule(
            'self.fieldPath.matches("^(metadata[.](name|namespace|uid|(labels|annotations)'
            f"[[]'{KEY}'[]])|spec[.](nodeName|serviceAccountName)|status[.](host|pod)IPs?)$\")",
            "fieldPath is none that a variable can have: take metadata.name, metadata.namespace,"
            " metadata.uid, metadata.labels['key'], metadata.annotations['key'], spec.nodeName,"
            " spec.serviceAccountName, status.hostIP, status.hostIPs, status.podIP or"
            " status.podIPs",
            ".fieldPath",
        ),
        Rule("self.apiVersion == 'v1'", "apiVersion is v1: leave it out", ".apiVersion"),
    )

    field_path: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[!-~]+$")]
    """Its path, such as status.hostIP or metadata.name."""
    api_version: Annotated[str, Meta(max_length=32)] = "v1"
    """Version of the pod's schema."""


class ResourceReference(Part, frozen=True, kw_only=True):
    """An amount of the container's resources."""

    rules = (
        Rule(
            "self.resource.matches("
            "'^(limits|requests)[.](cpu|memory|ephemeral-storage|hugepages-.*)$')",
            "resource is none that a variable can have: take limits or requests of cpu, memory,"
            " ephemeral-storage or hugepages-2Mi, such as limits.memory",
            ".resource",
        ),
        Rule(
            "!has(self.divisor) || (self.resource.endsWith('.cpu') ? ['0', '1', '1m'] : ['0', '1',"
            " '1k', '1M', '1G', '1T', '1P', '1Ki', '1Mi', '1Gi', '1Ti', '1Pi'])"
            ".exists(unit, quantity(unit).compareTo(quantity(string(self.divisor))) == 0)",
            "divisor is no unit: take 1 or 1m of cpu, and 1, 1k, 1Ki, 1M, 1Mi, 1G, 1Gi, 1T, 1Ti,"
            " 1P or 1Pi of others",
            ".divisor",
        ),
    )

    resource: Annotated[str, Meta(min_length=1, max_length=253, pattern="^[!-~]+$")]
    """Which, such as limits.memory."""
    container_name: Name | None = None
    """Container; default: this one."""
    divisor: Quantity | None = None
    """Unit that it is told in, such as 1Mi."""


class ValueSource(Part, frozen=True, kw_only=True):
    """Where a variable's value is."""

    rules = (
        Rule(
            "[has(self.secretKeyRef), has(self.configMapKeyRef), has(self.fieldRef),"
            " has(self.resourceFieldRef)].filter(x, x).size() == 1",
            "give one of secretKeyRef, configMapKeyRef, fieldRef and resourceFieldRef",
        ),
    )

    secret_key_ref: KeyReference | None = None
    """A key of a Secret in the same namespace."""
    config_map_key_ref: KeyReference | None = None
    """A key of a ConfigMap in the same namespace."""
    field_ref: FieldReference | None = None
    """A field of the pod."""
    resource_field_ref: ResourceReference | None = None
    """An amount of the container's resources."""


class EnvironmentVariable(Part, frozen=True, kw_only=True):
    """An environment variable of the engine."""

    rules = (
        Rule("!(has(self.value) && has(self.valueFrom))", "give value or valueFrom, not both"),
        Rule(
            "!(self.name in [" + ", ".join(f"'{name}'" for name in OWNED_VARIABLES) + "])",
            f"{', '.join(OWNED_VARIABLES)} are set by the operator: leave them out",
            ".name",
        ),
    )

    name: Annotated[str, Meta(min_length=1, max_length=253, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """Its name."""
    value: Annotated[str, Meta(max_length=4096)] | None = None
    """Its value."""
    value_from: ValueSource | None = None
    """Where its value is, as in pods."""


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
        Rule(
            "!has(self.env) || self.env.map(e, has(e.value) ? size(e.value) : 0).sum()"
            f" <= {_MOST_CHARACTERS}",
            f"values of env are more than {_MOST_CHARACTERS} characters together, which an object"
            " does not hold: take long ones from a ConfigMap, by valueFrom",
            ".env",
        ),
        Rule(
            "!has(self.annotations) || self.annotations.map(k, size(self.annotations[k])).sum()"
            f" <= {_MOST_CHARACTERS // 2}",
            f"annotations are more than {_MOST_CHARACTERS // 2} characters together",
            ".annotations",
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
