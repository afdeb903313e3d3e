"""The conditions: what is so, what is not, and why, in words that say what to do."""

from collections.abc import Sequence
from datetime import datetime

from quire_operator.planner.degraded import degraded
from quire_operator.planner.findings import Findings
from quire_operator.planner.kept import held
from quire_operator.planner.memory import Misfit
from quire_operator.planner.names import ENGINE_PORT
from quire_operator.planner.observed import Observed
from quire_operator.planner.placement import Placement
from quire_operator.planner.ready import ready
from quire_operator.planner.settings import PlannerSettings
from quire_operator.planner.unscheduled import NoNode, why_no_node
from quire_operator.planner.words import Said, num_replicas, several
from quire_operator.resource.accelerator import Accelerator
from quire_operator.resource.status import CONDITION_TYPES, Condition, ConditionType

_MAX_MESSAGE = 2000
_DOES = {"Fetching": ("fetches", "fetch"), "Loading": ("loads", "load")}
_NO_INVENTORY = "this operator works in single namespaces and sees no nodes: it tries again by time"


def conditions(
    observed: Observed,
    placement: Placement,
    findings: Findings,
    misfits: Sequence[Misfit],
    settings: PlannerSettings,
    now: datetime,
) -> tuple[Condition, ...]:
    """All conditions; the time of transition is kept where the status is as before."""
    said: dict[ConditionType, Said] = {
        "GPUsAvailable": _gpus_available(observed, placement, findings),
        "ModelLoaded": _model_loaded(observed, findings),
        "Available": _available(findings),
        "Progressing": _progressing(placement, findings),
        "Degraded": degraded(observed, placement, findings, misfits, settings),
        "ScalingActive": _scaling_active(observed),
        "MetricsFresh": _metrics_fresh(observed, findings),
    }
    said["Ready"] = ready(observed, placement, findings, said)
    before = {one.type: one for one in observed.service.status.conditions}
    return tuple(
        _condition(kind, said[kind], before.get(kind), observed.service.generation, now)
        for kind in CONDITION_TYPES
    )


def _condition(
    kind: str, said: Said, before: Condition | None, generation: int, now: datetime
) -> Condition:
    status, reason, message = said
    word = "Unknown" if status is None else str(status)
    since = stamp(now)
    if before is not None and before.status == word:
        since = before.last_transition_time
    return Condition(
        type=kind,
        status=word,  # type: ignore[arg-type]
        reason=reason,
        message=message[:_MAX_MESSAGE],
        last_transition_time=since,
        observed_generation=generation,
    )


def stamp(now: datetime) -> str:
    """A time as the API server writes it."""
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def _available(findings: Findings) -> Said:
    if findings.num_ready > 0:
        take = "takes" if findings.num_ready == 1 else "take"
        return True, "ReplicasReady", f"{num_replicas(findings.num_ready)} {take} requests"
    if findings.num_wanted == 0:
        return None, "NoReplicasWanted", "no replica is wanted"
    return False, "NoReplicaReady", f"none of {num_replicas(findings.num_wanted)} is ready"


def _progressing(placement: Placement, findings: Findings) -> Said:
    if placement.leaving:
        names = ", ".join(placement.leaving)
        words = f"{names} is not in the spec any more and serves until the others have"
        return True, "ReplacingAccelerator", f"{words} {num_replicas(findings.num_wanted)} ready"
    if findings.is_rolling:
        ready = f"{findings.num_updated_ready} of {num_replicas(findings.num_wanted)}"
        return True, "RollingOut", f"of the newest revision, ready: {ready}"
    if findings.num_ready < findings.num_wanted:
        wanted = num_replicas(findings.num_wanted)
        are = "is" if findings.num_wanted == 1 else "are"
        return True, "WaitingForReplicas", f"{findings.num_ready} of {wanted} {are} ready"
    return False, "Settled", "no change is under way"


def _gpus_available(observed: Observed, placement: Placement, findings: Findings) -> Said:
    if findings.num_pods == 0 and not placement.short_since:
        if not any(placement.replicas.values()):
            return None, "NoReplicasWanted", _why_none(findings)
        return None, "NoPodsYet", "no pod was made yet"
    waiting = [
        one
        for one in observed.service.spec.accelerators
        if one.name in findings.waiting or one.name in placement.short_since
    ]
    if not waiting:
        return _all_scheduled(findings)
    causes = [_no_node(one, observed, findings) for one in waiting]
    parts = [cause.words for cause in causes]
    if observed.nodes is None:
        parts.append(_NO_INVENTORY)
    return False, causes[0].reason, "; ".join(parts)


def _why_none(findings: Findings) -> str:
    if findings.num_wanted == 0:
        return "no replica is wanted"
    return "no replica is asked for: the bounds of the spec allow none; ScalingActive says why"


def _no_node(accelerator: Accelerator, observed: Observed, findings: Findings) -> NoNode:
    """Why one accelerator has no node, with its name."""
    products = ", ".join(accelerator.products) or "none needed"
    words = findings.waiting.get(accelerator.name, "no node within provisionTimeout.")
    cause = why_no_node(words, accelerator, observed.nodes)
    return cause._replace(words=f"{accelerator.name} (products: {products}): {cause.words}")


def _all_scheduled(findings: Findings) -> Said:
    """Where the scheduler has refused no pod: it may not have looked at some yet."""
    if findings.num_unseen:
        words = f"the scheduler has not looked at {findings.num_unseen} of {findings.num_pods} pods"
        return None, "NotScheduledYet", words
    return True, "AllScheduled", "every replica has a node"


def _model_loaded(observed: Observed, findings: Findings) -> Said:
    if findings.num_ready > 0:
        return True, "Loaded", "the model is loaded"
    if findings.num_wanted == 0:
        return None, "NoReplicasWanted", "no replica is wanted"
    running = [pod for pod in observed.pods if pod.is_scheduled and not pod.waiting_reason]
    if running:
        phases = {one.phase for one in observed.loading.values()}
        reason = "Fetching" if "Fetching" in phases else "Loading"
        one, more = _DOES[reason] if phases else ("fetches or loads", "fetch or load")
        who = f"1 engine {one}" if len(running) == 1 else f"{len(running)} engines {more}"
        return False, reason, f"{who} the model; accelerators[].loadingPercent says how far"
    return False, "NotStarted", "no engine runs yet"


def _scaling_active(observed: Observed) -> Said:
    spec = observed.service.spec
    if spec.suspend:
        return False, "Suspended", "spec.suspend is true"
    if spec.scaling.mode == "External":
        return False, "External", _from_outside(observed)
    if spec.scaling.mode == "Recommend":
        return False, "RecommendOnly", f"{_from_outside(observed)}; status recommends"
    if not observed.is_scaling:
        words = (
            "nothing scales here: replicas are spec.replicas, and at least scaling.minReplicas;"
            " an operator scales where it has a gateway, and --scale-seconds is not 0"
        )
        return False, "FixedReplicas", words
    if observed.scaled is None:
        return None, "NotDecidedYet", "replicas stay as they are until traffic has been looked at"
    return True, observed.scaled.code, observed.scaled.words


def _from_outside(observed: Observed) -> str:
    kept = held(observed)
    if kept is None:
        return "spec.replicas is written from outside"
    stay = "stays" if kept.replicas == 1 else "stay"
    return (
        f"{num_replicas(kept.replicas)} {stay} as under Auto until spec.replicas, which is"
        f" {kept.spec_replicas}, is set to another number"
    )


def _metrics_fresh(observed: Observed, findings: Findings) -> Said:
    if observed.scaled is not None and observed.scaled.unheard:
        return False, "NotHeard", f"for scaling, {observed.scaled.unheard}"
    if findings.num_ready == 0:
        return None, "NoReplicas", "there is no ready engine to hear of"
    silent = [pod for pod in observed.pods if pod.is_ready and pod.name not in observed.engines]
    failed = [
        f"{pod.name} at {pod.address}:{ENGINE_PORT}: {observed.unheard[pod.name]}"
        for pod in sorted(silent, key=lambda pod: pod.name)
        if pod.name in observed.unheard
    ]
    if failed:
        return (
            False,
            "NotAnswering",
            f"engines do not tell the operator their state: {several(failed)}",
        )
    if silent:
        names = sorted(pod.name for pod in silent)
        return None, "NotAskedYet", f"not heard of yet: {several(names)}"
    return True, "Fresh", "every ready engine has told its state lately"
