"""A service and its parts as they are in the cluster, from the API server's objects."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from quire_engine.protocol.state import EngineState, Loading
from quire_operator.planner.api_keys import ApiKeys
from quire_operator.planner.claims import ALONE, Standing
from quire_operator.planner.last_engine import LastEngine
from quire_operator.planner.names import (
    ACCELERATOR_LABEL,
    ENGINE_PORT,
    GPU_RESOURCE,
    INPUTS_ANNOTATION,
    PRODUCT_LABEL,
    SEAL_ANNOTATION,
    TEMPLATE_ANNOTATION,
)
from quire_operator.planner.quantities import amount_of
from quire_operator.resource.reading import InferenceService
from quire_operator.resource.status import ScalingDecision
from quire_operator.resource.times import moment
from quire_operator.scaling.outcome import Outcome

_STEP_PERCENT = 5
_MOST_BLOCKS = 1 << 40
_MOST_GPUS = 10**12
_NOT_HELPFUL = re.compile(
    r"preemption: 0/(\d+) nodes are available: \1 Preemption is not helpful"
    r"|^0/\d+ nodes are available: (?!\d)"
)
"""How the scheduler says that no node would take a pod whatever left it: for labels and taints, or
before it counts nodes, for a claim that there is not.
"""
_GOOD_WAITS = frozenset(("ContainerCreating", "PodInitializing"))


@dataclass(frozen=True, kw_only=True)
class Pod:
    """One engine pod."""

    name: str
    accelerator: str
    template_hash: str
    """Which revision of its Deployment it is of."""
    created_at: datetime
    is_ready: bool = False
    has_ready_containers: bool = False
    """Whether its own kubelet says so, be the node missed or not."""
    is_scheduled: bool = False
    is_ending: bool = False
    unschedulable_since: datetime | None = None
    """Since when the scheduler finds no node; None: it has one, or was not looked at yet."""
    scheduler_message: str = ""
    may_room_help: bool = True
    """While it finds no node: whether it might, once other pods end."""
    waiting_reason: str = ""
    """Why its container does not run, in the kubelet's word: ImagePullBackOff, ..."""
    waiting_message: str = ""
    last_exit_reason: str = ""
    """Why its container ended the last time: Error, OOMKilled, ..."""
    last_exit_code: int | None = None
    last_exit_message: str = ""
    """What the engine said at its end."""
    num_restarts: int = 0
    image: str = ""
    address: str = ""
    port: int = ENGINE_PORT
    node: str = ""


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """The Deployment of one accelerator."""

    accelerator: str
    replicas: int
    """Wanted, as the object says."""
    is_observed: bool
    """Whether its controller has seen the newest spec."""
    num_updated: int = 0
    num_ready: int = 0
    num_available: int = 0
    num_pods: int = 0
    inputs_hash: str = ""
    template: str = ""
    """Its pod template as it was made, JSON."""
    seal: str = ""
    """That both are as they were made."""
    live_template: Mapping[str, Any] | None = field(default=None, hash=False)
    """Its pod template as it is, with what the API server has filled in."""
    is_one_by_one: bool = False
    """Whether old pods make room before new ones come."""
    gap: int = 0
    """How many pods its rollout may do without."""
    progressed_at: datetime | None = None
    """When its rollout came further the last time."""
    is_stuck: bool = False
    """Whether its rollout has made no progress for its deadline."""
    refused_pods: str = ""
    """Why its controller may make no pods, in the API server's words: a quota, a webhook."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node, as far as engine pods go."""

    name: str
    product: str
    num_gpus: int
    is_ready: bool
    created_at: datetime
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    taints: tuple[tuple[str, str, str], ...] = ()
    """Keys, values and effects."""
    allocatable: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Amounts by resource, as the API server writes them."""


class LoadingEngine(NamedTuple):
    """How far an engine's model has come; the one that is behind is the lesser."""

    phase: Literal["Fetching", "Loading"]
    percent: int
    """Of what it is at in this phase, rounded to 5."""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What an engine says of itself, as far as plans go: while this is equal, so is the plan."""

    revision: str
    """Commit of its model; empty where the source has none."""
    num_blocks: int
    num_held: int
    num_reserved: int
    is_refusing: bool
    """Whether its pressure leaves no room for interactive requests."""
    loading: LoadingEngine | None = None
    """While its model is on the way."""


@dataclass(frozen=True, kw_only=True)
class SecretsSeen:
    """What is known of the Secrets that a service names."""

    keys: ApiKeys = field(default_factory=ApiKeys)
    """Keys of those who may ask; as they were last, where their Secret cannot be read now."""
    missing: tuple[str, ...] = ()
    """Names of those that there are not."""
    unreadable: tuple[str, ...] = ()
    """Names of those that could not be read, with the API server's words."""


NO_SECRETS = SecretsSeen()


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """An object that the API server did not take."""

    what: str
    """Kind and name."""
    words: str
    """Of the API server."""
    is_foreign: bool = False
    """Whether there is one already that is somebody else's."""


@dataclass(frozen=True, kw_only=True)
class GatewayPods:
    """The gateway's pods that speak TLS, or those that do not: there is one at least."""

    taking: tuple[str, ...] = ()
    """Addresses of those that take requests and go on doing so."""
    ending: tuple[str, ...] = ()
    """Of those that were told to end: they take requests for some seconds still."""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """All that a plan is made from, besides the time and the operator's settings."""

    service: InferenceService
    deployments: Mapping[str, Deployment] = field(default_factory=dict)
    """By accelerator, those of removed accelerators too."""
    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] | None = None
    """None where nodes may not be read (an operator of one namespace)."""
    engines: Mapping[str, Engine] = field(default_factory=dict)
    """Newest states by pod, only of those that are ready and were heard of lately."""
    last_engine: LastEngine | None = None
    """What gateways are told of engines while there is none."""
    unheard: Mapping[str, str] = field(default_factory=dict)
    """Why nothing is heard of an engine that was asked, by pod."""
    loading: Mapping[str, LoadingEngine] = field(default_factory=dict)
    """How far models of engines have come that are not ready, by pod."""
    secrets: SecretsSeen = NO_SECRETS
    """The Secrets that the spec names."""
    refusals: tuple[Refusal, ...] = ()
    """What the API server did not take of this plan, when it was applied."""
    gateways: Mapping[bool, GatewayPods] = field(default_factory=dict)
    """By whether they speak TLS: both kinds are there while that is being changed."""
    root_secret: bytes = b""
    """What internal tokens are made from."""
    standing: Standing = ALONE
    """What of its names others had before it."""
    is_scaling: bool = False
    """Whether replicas follow the traffic, as far as the spec wants it: there is a gateway."""
    scaled: Outcome | None = None
    """What scaling decided last; None: nothing yet."""
    last_scaling: ScalingDecision | None = None
    """The last change that it made; None: the one in the status."""


def engine_from(state: EngineState) -> Engine:
    """An engine from its state."""
    return Engine(
        revision=state.model_revision or "",
        num_blocks=_bounded(state.blocks.total),
        num_held=_bounded(state.blocks.held),
        num_reserved=_bounded(state.blocks.reserved),
        is_refusing=state.pressure is not None and state.pressure.value >= 1,
        loading=_loading(state.loading) if state.loading else None,
    )


def _bounded(number: int) -> int:
    """A count as an engine could have it: an image of a user's own may say what it likes."""
    return min(max(number, 0), _MOST_BLOCKS)


def _loading(loading: Loading) -> LoadingEngine:
    """In steps, so that a plan is made and a status written now and then only."""
    steps = 100 // _STEP_PERCENT
    phase: Literal["Fetching", "Loading"] = "Fetching" if loading.phase == "fetching" else "Loading"
    return LoadingEngine(phase, int(min(max(loading.fraction, 0.0), 1.0) * steps) * _STEP_PERCENT)


def may_room_help(words: str) -> bool:
    """Whether a node might take a pod once others leave it, by the scheduler's words."""
    return not _NOT_HELPFUL.search(words)


def pod_from(body: Mapping[str, Any]) -> Pod:
    """A pod from its body."""
    metadata, status = body["metadata"], body.get("status", {})
    labels = metadata.get("labels", {})
    conditions = {one["type"]: one for one in status.get("conditions", [])}
    scheduled = conditions.get("PodScheduled", {})
    is_unschedulable = scheduled.get("reason") == "Unschedulable"
    container: Mapping[str, Any] = next(iter(status.get("containerStatuses", [])), {})
    waiting = container.get("state", {}).get("waiting", {})
    ended = container.get("state", {}).get("terminated") or container.get("lastState", {}).get(
        "terminated", {}
    )
    is_waiting_badly = waiting.get("reason", "") not in _GOOD_WAITS
    return Pod(
        name=metadata["name"],
        accelerator=labels.get(ACCELERATOR_LABEL, ""),
        template_hash=labels.get("pod-template-hash", ""),
        created_at=moment(metadata["creationTimestamp"]),
        is_ready=conditions.get("Ready", {}).get("status") == "True",
        has_ready_containers=conditions.get("ContainersReady", {}).get("status") == "True",
        is_scheduled=scheduled.get("status") == "True",
        is_ending="deletionTimestamp" in metadata,
        unschedulable_since=moment(scheduled["lastTransitionTime"]) if is_unschedulable else None,
        scheduler_message=scheduled.get("message", "") if is_unschedulable else "",
        may_room_help=may_room_help(scheduled.get("message", "")),
        waiting_reason=waiting.get("reason", "") if is_waiting_badly else "",
        waiting_message=waiting.get("message", "") if is_waiting_badly else "",
        last_exit_reason=ended.get("reason", ""),
        last_exit_code=ended.get("exitCode"),
        last_exit_message=ended.get("message", "").strip(),
        num_restarts=container.get("restartCount", 0),
        image=container.get("image", ""),
        address=status.get("podIP", ""),
        node=body.get("spec", {}).get("nodeName", ""),
    )


def deployment_from(body: Mapping[str, Any]) -> Deployment:
    """A Deployment from its body."""
    metadata, status = body["metadata"], body.get("status", {})
    annotations = metadata.get("annotations", {})
    spec = body.get("spec", {})
    rolling = spec.get("strategy", {}).get("rollingUpdate", {})
    conditions = {one["type"]: one for one in status.get("conditions", [])}
    failure = conditions.get("ReplicaFailure", {})
    progressing = conditions.get("Progressing", {})
    return Deployment(
        accelerator=metadata.get("labels", {}).get(ACCELERATOR_LABEL, ""),
        replicas=spec.get("replicas", 0),
        is_one_by_one=rolling.get("maxSurge") == 0,
        gap=_count(rolling.get("maxUnavailable", 0)),
        progressed_at=moment(at) if (at := progressing.get("lastUpdateTime")) else None,
        is_observed=status.get("observedGeneration", 0) >= metadata.get("generation", 0),
        num_updated=status.get("updatedReplicas", 0),
        num_ready=status.get("readyReplicas", 0),
        num_available=status.get("availableReplicas", 0),
        num_pods=status.get("replicas", 0),
        inputs_hash=annotations.get(INPUTS_ANNOTATION, ""),
        template=annotations.get(TEMPLATE_ANNOTATION, ""),
        seal=annotations.get(SEAL_ANNOTATION, ""),
        live_template=spec.get("template"),
        is_stuck=progressing.get("reason") == "ProgressDeadlineExceeded",
        refused_pods=failure.get("message", "") if failure.get("status") == "True" else "",
    )


def node_from(body: Mapping[str, Any]) -> Node:
    """A node from its body."""
    metadata, status = body["metadata"], body.get("status", {})
    ready = any(
        one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", [])
    )
    return Node(
        name=metadata["name"],
        product=metadata.get("labels", {}).get(PRODUCT_LABEL, ""),
        num_gpus=_num_gpus(status.get("allocatable", {}).get(GPU_RESOURCE, "0")),
        is_ready=ready and not body.get("spec", {}).get("unschedulable", False),
        created_at=moment(metadata["creationTimestamp"]),
        labels=metadata.get("labels", {}),
        taints=tuple(
            (one.get("key", ""), one.get("value", ""), one.get("effect", ""))
            for one in body.get("spec", {}).get("taints", [])
        ),
        allocatable=status.get("allocatable", {}),
    )


def _count(value: object) -> int:
    """A number of pods; 0 for a percentage, which is nothing of ours."""
    return value if isinstance(value, int) else 0


def _num_gpus(quantity: object) -> int:
    """A number of devices; 0 for what is none."""
    amount = amount_of(quantity)
    return int(amount) if amount is not None and amount < _MOST_GPUS else 0
