"""What the operator says: the resource's status, field by field.

Written on a transition, or at most once a minute for figures; nothing is written when nothing
changed. There is no phase: conditions say what is true and what is not.
"""

from typing import Annotated, Literal

from msgspec import Meta, field

from quire_operator.resource.base import Part
from quire_operator.resource.kinds import (
    Cost,
    Count,
    Message,
    ServedName,
    ShortName,
    Timestamp,
    Total,
    Word,
)

ConditionType = Literal[
    "Ready",
    "Available",
    "Progressing",
    "Degraded",
    "GPUsAvailable",
    "ModelLoaded",
    "ScalingActive",
    "MetricsFresh",
]
CONDITION_TYPES: tuple[ConditionType, ...] = (
    "Ready",
    "Available",
    "Progressing",
    "Degraded",
    "GPUsAvailable",
    "ModelLoaded",
    "ScalingActive",
    "MetricsFresh",
)
"""All of them are there from the first visit on."""

AdmissionState = Literal["Open", "BackgroundRefused", "Refusing", "NoReplicas", "Suspended"]
_BY_NAME = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
_BY_TYPE = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}


class Condition(Part, frozen=True, kw_only=True, omit_defaults=False):
    """One thing that is so, is not so, or is not known."""

    type: Annotated[str, Meta(max_length=64)]
    """What it is about."""
    status: Literal["True", "False", "Unknown"]
    """Whether it is so."""
    reason: Annotated[str, Meta(min_length=1, max_length=64, pattern="^[A-Za-z][A-Za-z0-9]*$")]
    """Why, in one word for programs."""
    message: Message = ""
    """Why, in a sentence, and what to do."""
    last_transition_time: Timestamp
    """When status changed last."""
    observed_generation: Annotated[int, Meta(ge=0)] = 0
    """Generation of the spec that it is about."""


class AcceleratorStatus(Part, frozen=True, kw_only=True, omit_defaults=False):
    """What runs on one accelerator."""

    name: ShortName
    """Its name in spec.accelerators."""
    desired: Count = 0
    """Replicas that are wanted."""
    scheduled: Total = 0
    """Replicas that have a node."""
    ready: Total = 0
    """Replicas that answer."""
    blocks_held_percent: Annotated[int, Meta(ge=0, le=100)] | None = None
    """KV blocks that running requests hold, of all, rounded to 5."""
    blocks_reserved_percent: Annotated[int, Meta(ge=0, le=1000)] | None = None
    """KV blocks that running requests will need at their peak, rounded to 5."""
    short_since: Timestamp | None = None
    """Since when no node was found for a replica within provisionTimeout; other accelerators stand
    in for it."""
    loading_phase: Literal["Fetching", "Loading"] | None = None
    """What the replica is at that is behind all others on its way to be ready: it fetches the
    model's files, or loads them."""
    loading_percent: Annotated[int, Meta(ge=0, le=100)] | None = None
    """How far it has come with what it does in this phase, rounded to 5."""
    tokens_per_second: Annotated[int, Meta(ge=0)] | None = None
    """Tokens that one replica generates at the service level, as measured."""


class ReplicasOn(Part, frozen=True, kw_only=True, omit_defaults=False):
    """How many replicas on one accelerator."""

    name: ShortName
    """Its name in spec.accelerators."""
    replicas: Count
    """How many."""


class NameClaim(Part, frozen=True, kw_only=True, omit_defaults=False):
    """A name that clients put in "model", and since when it is wanted."""

    name: ServedName
    """The name or alias."""
    since: Timestamp
    """Since when the service has wanted it without a break."""


class Claims(Part, frozen=True, kw_only=True, omit_defaults=False):
    """The names that the service wants: whoever wanted a name first has it."""

    names: Annotated[tuple[NameClaim, ...], Meta(max_length=32, extra_json_schema=_BY_NAME)] = ()
    """Its name and aliases."""
    host: Annotated[str, Meta(max_length=253)] = ""
    """Host of the ingress at which it wants them."""
    host_since: Timestamp | None = None
    """Since when it has wanted this host."""


class KeptReplicas(Part, frozen=True, kw_only=True, omit_defaults=False):
    """What scaling.mode Auto runs, and what stays when the mode is left."""

    replicas: Total
    """Over all accelerators."""
    spec_replicas: Count
    """What spec.replicas was meanwhile: once it is another number, that one counts."""
    accelerators: Annotated[
        tuple[ReplicasOn, ...], Meta(max_length=16, extra_json_schema=_BY_NAME)
    ] = ()
    """On which accelerators."""


class ScalingDecision(Part, frozen=True, kw_only=True, omit_defaults=False):
    """The last time that the number of replicas was changed, and why."""

    time: Timestamp
    """When."""
    before: Annotated[tuple[ReplicasOn, ...], Meta(max_length=16, extra_json_schema=_BY_NAME)] = ()
    """Replicas before it."""
    after: Annotated[tuple[ReplicasOn, ...], Meta(max_length=16, extra_json_schema=_BY_NAME)] = ()
    """Replicas after it."""
    reason: Message = ""
    """Why, in a sentence."""
    inputs: Annotated[dict[str, Annotated[str, Meta(max_length=256)]], Meta(max_length=32)] = field(
        default_factory=dict
    )
    """The figures that it was taken from."""


class InferenceServiceStatus(Part, frozen=True, kw_only=True, omit_defaults=False):
    """What is so, as of observedGeneration."""

    observed_generation: Annotated[int, Meta(ge=0)] = 0
    """Generation of the spec that this is about."""
    url: Annotated[str, Meta(max_length=512)] = ""
    """Where to send requests: the ingress, or the address inside the cluster."""
    selector: Annotated[str, Meta(max_length=512)] = ""
    """Labels of the engine pods, for kubectl scale and HPAs."""
    replicas: Total = 0
    """Engine pods that there are."""
    ready_replicas: Total = 0
    """Engine pods that answer."""
    desired_replicas: Total = 0
    """Engine pods that are wanted."""
    promised_replicas: Total | None = None
    """Engine pods without which the service is not Ready: as many as were wanted when all of them
    answered last, or fewer where fewer are wanted. More are on their way, and Ready meanwhile."""
    kept_replicas: KeptReplicas | None = None
    """What scaling.mode Auto runs. When the mode is left it stays so until spec.replicas is
    changed; absent: spec.replicas counts."""
    claims: Claims | None = None
    """Since when it has wanted its names, which decides who has one that others want, too."""
    model: Word = ""
    """What clients put in "model"."""
    resolved_revision: Word = ""
    """Commit or version of the model that runs; engines that start later read the same."""
    resolved_source: Annotated[str, Meta(max_length=640)] = ""
    """Source that it was found for, and the request to restart; another one is resolved anew."""
    hourly_cost: Cost | None = None
    """What the replicas cost together. Absent where a price is not known, and while replicas serve
    on of an accelerator that the spec has no more."""
    ready_on: Annotated[str, Meta(max_length=1024)] = ""
    """Replicas that answer, of those wanted, by accelerator: `1/2 l4, 1/1 h100`. In words, because
    a column of kubectl shows the first of a list alone."""
    blocks_held_percent: Annotated[int, Meta(ge=0, le=100)] | None = None
    """KV blocks that running requests hold, of those of all engines, rounded to 5."""
    loading_percent: Annotated[int, Meta(ge=0, le=100)] | None = None
    """How far the replica has come that is behind all others on its way to be ready, rounded to 5.
    """
    tokens_per_second: Annotated[int, Meta(ge=0)] | None = None
    """Tokens that the replicas that answer generate together at the service level, as measured."""
    admission_state: AdmissionState | None = None
    """Whether requests are let in."""
    accelerators: Annotated[
        tuple[AcceleratorStatus, ...], Meta(max_length=16, extra_json_schema=_BY_NAME)
    ] = ()
    """What runs on each accelerator."""
    conditions: Annotated[
        tuple[Condition, ...], Meta(max_length=16, extra_json_schema=_BY_TYPE)
    ] = ()
    """What is so, what is not, and why."""
    last_scaling_decision: ScalingDecision | None = None
    """The last change of the number of replicas."""
