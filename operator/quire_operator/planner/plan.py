"""From what is observed of a service to what should be.

Objects, status, events, and when to look again. Pure: the same observation, settings and time give
the same plan, and a plan that has been applied gives itself.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from quire_operator.planner.deployment import (
    Rollout,
    deployment,
    leaving_deployment,
    rollout_of,
)
from quire_operator.planner.disruption import disruption_budget
from quire_operator.planner.documents import internal_token_secret, live_config_map, routing_map
from quire_operator.planner.events import Event, transitions
from quire_operator.planner.findings import find
from quire_operator.planner.memory import Misfit, find_misfits
from quire_operator.planner.names import ACCELERATOR_LABEL, INPUTS_ANNOTATION
from quire_operator.planner.network import from_outside, network_policy, services
from quire_operator.planner.observed import Observed
from quire_operator.planner.placement import Placement, place
from quire_operator.planner.settings import PlannerSettings
from quire_operator.planner.status import status_of
from quire_operator.resource.crd import API_VERSION, KIND
from quire_operator.resource.status import InferenceServiceStatus

Body = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What should be."""

    objects: tuple[Body, ...]
    """Everything that there should be; what the operator made and is not among them goes."""
    status: InferenceServiceStatus
    events: tuple[Event, ...]
    look_again_at: datetime | None
    """When time alone changes the plan; None: when something is seen to change."""


def plan(observed: Observed, settings: PlannerSettings, now: datetime) -> Plan:
    """Plan one service."""
    misfits = find_misfits(observed.service)
    placement = place(observed, settings, now)
    rollouts = {
        one.name: rollout_of(observed, one, settings, now)
        for one in observed.service.spec.accelerators
    }
    objects = _objects(observed, placement, rollouts, misfits, settings)
    findings = find(observed, _pod_inputs(objects))
    status = status_of(observed, placement, findings, misfits, settings, now)
    return Plan(
        objects=tuple(_owned(observed, body) for body in objects),
        status=status,
        events=tuple(
            transitions(observed.service.status, status, observed.service.spec.scaling.mode)
        ),
        look_again_at=_earliest(placement, rollouts),
    )


def _objects(
    observed: Observed,
    placement: Placement,
    rollouts: dict[str, Rollout],
    misfits: list[Misfit],
    settings: PlannerSettings,
) -> list[Body]:
    """In the order in which they are made: what pods mount comes before pods."""
    unfit = {one.accelerator for one in misfits}
    deployments = [
        deployment(
            observed,
            one,
            placement.replicas[one.name],
            settings,
            rollouts[one.name],
            is_held=one.name in unfit,
        )
        for one in observed.service.spec.accelerators
        if one.name not in unfit or one.name in observed.deployments
    ]
    optional = [
        *(leaving_deployment(observed, *one) for one in placement.leaving.items()),
        disruption_budget(
            observed, sum(placement.replicas.values()) + sum(placement.leaving.values())
        ),
        None if observed.standing.name_owner else from_outside(observed, settings),
    ]
    return [
        live_config_map(observed),
        internal_token_secret(observed, settings),
        network_policy(observed, settings),
        *services(observed, settings),
        *deployments,
        *([] if observed.standing.name_owner else [routing_map(observed, settings)]),
        *(body for body in optional if body is not None),
    ]


def _pod_inputs(objects: list[Body]) -> dict[str, str]:
    """By accelerator, the hash of what its Deployment's pods are made of."""
    found = [body["metadata"] for body in objects if body["kind"] == "Deployment"]
    return {
        one["labels"][ACCELERATOR_LABEL]: one["annotations"][INPUTS_ANNOTATION] for one in found
    }


def _owned(observed: Observed, body: Body) -> Body:
    """With its owner: the cluster deletes it with the service, whether the operator runs or not."""
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": observed.service.name,
        "uid": observed.service.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    return body | {"metadata": body["metadata"] | {"ownerReferences": [owner]}}


def _earliest(placement: Placement, rollouts: dict[str, Rollout]) -> datetime | None:
    moments = [placement.look_again_at, *(one.look_again_at for one in rollouts.values())]
    return min((one for one in moments if one is not None), default=None)
