"""The conditions: what is so, what is not, and why, in words that say what to do."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from quire_operator.planner.findings import Findings
from quire_operator.planner.memory import Misfit
from quire_operator.planner.observed import Observed
from quire_operator.planner.placement import Placement
from quire_operator.resource.status import CONDITION_TYPES, Condition, ConditionType

Said = tuple[bool | None, str, str]
"""Whether it is so (None: not known), the reason, the message."""

_MAX_MESSAGE = 2000
_MOST_SENTENCES = 5
_NO_INVENTORY = "this operator works in single namespaces and sees no nodes: it tries again by time"


def conditions(
    observed: Observed,
    placement: Placement,
    findings: Findings,
    misfits: Sequence[Misfit],
    now: datetime,
) -> tuple[Condition, ...]:
    """All conditions; the time of transition is kept where the status is as before."""
    said: dict[ConditionType, Said] = {
        "GPUsAvailable": _gpus_available(observed, placement, findings),
        "ModelLoaded": _model_loaded(observed, findings),
        "Available": _available(findings),
        "Progressing": _progressing(placement, findings),
        "Degraded": _degraded(observed, placement, findings, misfits),
        "ScalingActive": _scaling_active(observed),
        "MetricsFresh": _metrics_fresh(observed, findings),
    }
    said["Ready"] = _ready(observed, findings, said)
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


def _ready(observed: Observed, findings: Findings, said: dict[ConditionType, Said]) -> Said:
    """The summary: everything that was asked for is there, in its newest form."""
    if observed.service.spec.suspend:
        return False, "Suspended", "spec.suspend is true: set it to false to run it again"
    for kind in ("Degraded", "GPUsAvailable", "Available", "Progressing"):
        status, reason, message = said[kind]
        is_bad = status is True if kind in ("Degraded", "Progressing") else status is False
        if is_bad:
            return False, reason, message
    if findings.num_wanted == 0:
        return True, "ScaledToZero", "no replica is wanted; the first request starts one"
    return True, "AllReady", f"all {findings.num_wanted} replicas are ready"


def _available(findings: Findings) -> Said:
    if findings.num_ready > 0:
        return True, "ReplicasReady", f"{findings.num_ready} replicas take requests"
    if findings.num_wanted == 0:
        return None, "NoReplicasWanted", "no replica is wanted"
    return False, "NoReplicaReady", f"none of {findings.num_wanted} replicas is ready"


def _progressing(placement: Placement, findings: Findings) -> Said:
    if placement.leaving:
        names = ", ".join(placement.leaving)
        return (
            True,
            "ReplacingAccelerator",
            (
                f"{names} is not in the spec any more and serves until the others have"
                f" {findings.num_wanted} replicas ready"
            ),
        )
    if findings.is_rolling:
        return (
            True,
            "RollingOut",
            (
                f"{findings.num_updated_ready} of {findings.num_wanted} replicas are of the newest"
                " revision and ready"
            ),
        )
    if findings.num_ready < findings.num_wanted:
        return (
            True,
            "WaitingForReplicas",
            f"{findings.num_ready} of {findings.num_wanted} replicas are ready",
        )
    return False, "Settled", "everything is as asked for"


def _degraded(
    observed: Observed, placement: Placement, findings: Findings, misfits: Sequence[Misfit]
) -> Said:
    """The worst of what somebody has to do something about."""
    return next(_degradations(observed, placement, findings, misfits), (False, "NothingWrong", ""))


def _degradations(
    observed: Observed, placement: Placement, findings: Findings, misfits: Sequence[Misfit]
) -> Iterator[Said]:
    if observed.name_owner:
        yield (
            True,
            "NameTaken",
            (
                f"{observed.name_owner} already serves this model name at this host, and is older:"
                " change model.name or ingress.host"
            ),
        )
    if misfits:
        yield (
            True,
            "ModelDoesNotFit",
            "; ".join(f"{one.accelerator}: {one.message}" for one in misfits),
        )
    yield from _of_secrets(observed)
    yield from _of_refusals(observed)
    num_old = findings.num_old_ready if findings.is_rolling else 0
    kept = f"; {num_old} of the old revision serve on" if num_old else ""
    stuck = [one.accelerator for one in observed.deployments.values() if one.is_stuck]
    if stuck and findings.trouble is None:
        yield True, "RolloutStuck", f"no progress on {', '.join(stuck)}{kept}"
    if findings.trouble:
        yield True, findings.trouble.reason, findings.trouble.message + kept
    if placement.num_missing:
        yield (
            True,
            "MaxReplicasReached",
            (
                f"{placement.num_missing} of {findings.num_wanted} replicas fit no accelerator's"
                " maxReplicas: raise it, or add an accelerator"
            ),
        )


def _of_secrets(observed: Observed) -> Iterator[Said]:
    seen = observed.secrets
    if seen.missing:
        missing = ", ".join(seen.missing)
        yield True, "SecretMissing", f"there is no Secret {missing} in this namespace: create it"
    if seen.unreadable:
        words = "; ".join(seen.unreadable)
        yield True, "SecretUnreadable", f"{words}; what was read before stays in force"
    if seen.keys.problems:
        yield True, "ApiKeysInvalid", _several("of the Secret with API keys", seen.keys.problems)


def _of_refusals(observed: Observed) -> Iterator[Said]:
    if observed.refusals:
        several = [f"{one.what}: {one.words}" for one in observed.refusals]
        yield True, "ApplyRefused", _several("the API server did not take", several)
    refused = {
        name: one.refused_pods for name, one in observed.deployments.items() if one.refused_pods
    }
    if refused:
        several = [f"{name}: {words}" for name, words in refused.items()]
        yield True, "PodsRefused", _several("no pod could be made for", several)


def _several(what: str, sentences: Sequence[str]) -> str:
    """The first few: all of them may be hundreds."""
    more = len(sentences) - _MOST_SENTENCES
    rest = f"; and {more} more" if more > 0 else ""
    return f"{what} {'; '.join(sentences[:_MOST_SENTENCES])}{rest}"


def _gpus_available(observed: Observed, placement: Placement, findings: Findings) -> Said:
    if findings.num_pods == 0 and findings.num_wanted > 0:
        return None, "NoPodsYet", "no pod was made yet"
    if not findings.waiting and not placement.short_since:
        return _all_scheduled(findings)
    names = {one.name: one for one in observed.service.spec.accelerators}
    waiting = sorted({*findings.waiting, *placement.short_since} & set(names))
    parts = []
    for name in waiting:
        products = ", ".join(names[name].products) or "none needed"
        words = findings.waiting.get(name, "no node within provisionTimeout")
        parts.append(f"{name} (products: {products}): {words}")
    if not parts:
        return _all_scheduled(findings)
    if observed.nodes is None:
        parts.append(_NO_INVENTORY)
    waits_for_gpu = any(names[name].products for name in waiting)
    return False, "NoGPUNode" if waits_for_gpu else "NoNode", "; ".join(parts)


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
        does = {"Fetching": "fetch", "Loading": "load"}[reason] if phases else "fetch or load"
        words = (
            f"{len(running)} engines {does} the model; accelerators[].loadingPercent says how far"
        )
        return False, reason, words
    return False, "NotStarted", "no engine runs yet"


def _scaling_active(observed: Observed) -> Said:
    spec = observed.service.spec
    if spec.suspend:
        return False, "Suspended", "spec.suspend is true"
    if spec.scaling.mode == "External":
        return False, "External", "spec.replicas is written from outside"
    if spec.scaling.mode == "Recommend":
        return False, "RecommendOnly", "spec.replicas is written from outside; status recommends"
    words = (
        "this version does not scale by itself: replicas are spec.replicas, and at least"
        " scaling.minReplicas"
    )
    return False, "FixedReplicas", words


def _metrics_fresh(observed: Observed, findings: Findings) -> Said:
    if findings.num_ready == 0:
        return None, "NoReplicas", "there is no ready engine to hear of"
    silent = [
        pod.name for pod in observed.pods if pod.is_ready and pod.name not in observed.engines
    ]
    if silent:
        return False, "Stale", f"no state lately from {', '.join(sorted(silent)[:5])}"
    return True, "Fresh", "every ready engine has told its state lately"
