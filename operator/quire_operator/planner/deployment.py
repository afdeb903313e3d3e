"""The Deployment of one accelerator."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from quire_operator.planner import names
from quire_operator.planner.making_room import old_ones_may_help
from quire_operator.planner.observed import Deployment, Observed
from quire_operator.planner.settings import PlannerSettings
from quire_operator.planner.template import kept_template, template_annotations, template_of
from quire_operator.resource.accelerator import Accelerator

Body = dict[str, Any]

_HISTORY = 3
_PROGRESS_SECONDS = 3900
"""A rollout without progress for so long is stuck: longer than a model may take to load."""


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """How a Deployment replaces its pods."""

    is_one_by_one: bool
    """Whether old pods make room, since new ones find no GPU beside them."""
    gap: int = 1
    """How many pods may be missing then: one, and those for which there is no GPU anyway."""
    look_again_at: datetime | None = None


def deployment(
    observed: Observed,
    accelerator: Accelerator,
    replicas: int,
    settings: PlannerSettings,
    rollout: Rollout,
    *,
    is_held: bool = False,
) -> Body:
    """The object, without its owner; with is_held, of the pods that there are."""
    template, inputs = template_of(observed, accelerator, settings, is_held=is_held)
    surge, gap = (0, rollout.gap) if rollout.is_one_by_one else (1, 0)
    rolling = {"maxSurge": surge, "maxUnavailable": gap}
    return _body(observed, accelerator.name, replicas, rolling, (template, inputs))


def leaving_deployment(observed: Observed, accelerator: str, replicas: int) -> Body | None:
    """One whose accelerator the spec has no more, as it was; None if that is not known.

    Where somebody spoilt what it keeps of its template, what runs is what it was; for the spec, if
    the accelerator comes back, it is another one.
    """
    current = observed.deployments[accelerator]
    template, inputs = kept_template(observed, current), current.inputs_hash
    if template is None:
        template, inputs = dict(current.live_template or {}), ""
    if not template:
        return None
    rolling = {"maxSurge": 1, "maxUnavailable": 0}
    return _body(observed, accelerator, replicas, rolling, (template, inputs))


def _body(
    observed: Observed,
    accelerator: str,
    replicas: int,
    rolling: dict[str, int],
    made: tuple[Body, str],
) -> Body:
    service, (template, inputs) = observed.service, made
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "namespace": service.namespace,
            "name": names.deployment_name(service.name, accelerator),
            "labels": names.labels(service.name, "engine", accelerator),
            "annotations": template_annotations(observed, accelerator, template, inputs),
        },
        "spec": {
            "replicas": replicas,
            "paused": False,
            "revisionHistoryLimit": _HISTORY,
            "progressDeadlineSeconds": _PROGRESS_SECONDS,
            "selector": {"matchLabels": names.engine_selector(service.name, accelerator)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            "template": template,
        },
    }


def rollout_of(
    observed: Observed, accelerator: Accelerator, settings: PlannerSettings, now: datetime
) -> Rollout:
    """Surge where there are GPUs for it; else one by one, once a new pod has waited in vain.

    With one replica and no spare GPU there is no way without a gap: the old pod has to go first.
    Where new pods would find no node even then, as with a product that no node has, none goes.
    """
    current = observed.deployments.get(accelerator.name)
    if current is None or not is_rolling(current.num_updated, current.num_pods, current.replicas):
        return Rollout(is_one_by_one=False)
    pods = [pod for pod in observed.pods if pod.accelerator == accelerator.name]
    waiting = [pod for pod in pods if pod.unschedulable_since and not pod.is_ending]
    if waiting and not old_ones_may_help(observed, accelerator, pods, waiting, settings):
        return Rollout(is_one_by_one=False)
    if current.is_one_by_one:  # until it is done: the GPUs are as few as before
        return _one_by_one(current, len(pods), len(waiting), settings, now)
    if not waiting:
        return Rollout(is_one_by_one=False)
    since = min(pod.unschedulable_since for pod in waiting if pod.unschedulable_since)
    turn = since + timedelta(seconds=settings.surge_patience_seconds)
    if now >= turn:
        return Rollout(is_one_by_one=True)
    return Rollout(is_one_by_one=False, look_again_at=turn)


def _one_by_one(
    current: Deployment, num_pods: int, num_waiting: int, settings: PlannerSettings, now: datetime
) -> Rollout:
    """Where more replicas are wanted than there are GPUs, those are missing, and no old pod may go.

    Then one more may be; but only once nothing has moved for a while: a new pod whose GPU has just
    become free still seems to wait for one.
    """
    gap = max(current.gap, 1)
    missing = num_waiting - max(num_pods - current.replicas, 0)
    if missing < gap or current.progressed_at is None:
        return Rollout(is_one_by_one=True, gap=gap)
    turn = current.progressed_at + timedelta(seconds=settings.surge_patience_seconds)
    if now >= turn:
        return Rollout(is_one_by_one=True, gap=missing + 1)
    return Rollout(is_one_by_one=True, gap=gap, look_again_at=turn)


def is_rolling(num_updated: int, num_pods: int, replicas: int) -> bool:
    """Whether pods of an older revision are still there beside newer ones."""
    return num_pods > num_updated and replicas > 0
