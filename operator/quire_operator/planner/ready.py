"""The condition Ready: what was promised is served.

As Available of a Deployment, it is not about what is on its way: while replicas are added to those
that serve, it stays True, so that whoever deploys by it sees no failure in each rise of the
traffic. A service that begins, another revision that rolls out, and fewer replicas than there were
are not ready.
"""

from collections.abc import Mapping

from quire_operator.planner.findings import Findings
from quire_operator.planner.observed import Observed
from quire_operator.planner.placement import Placement
from quire_operator.planner.words import Said, num_replicas
from quire_operator.resource.status import ConditionType

SCALING_UP = "ScalingUp"
_GOOD_WHEN_FALSE = frozenset(("Degraded", "Progressing"))
_WORST_FIRST: tuple[ConditionType, ...] = (
    "Degraded",
    "GPUsAvailable",
    "Available",
    "Progressing",
)
_ON_THEIR_WAY = frozenset(("NoReplicaReady", "WaitingForReplicas"))
"""Why a service that waits for more replicas is not Available, or Progressing."""


def promised(observed: Observed, findings: Findings) -> int | None:
    """Without how many replicas a service is not ready; None: without all that are wanted.

    All that are wanted, once they are ready; then it falls with what is wanted, and rises when all
    of the new ones are ready.
    """
    if observed.service.spec.suspend:
        return None
    before = observed.service.status.promised_replicas
    if findings.num_ready >= findings.num_wanted and not findings.is_rolling:
        return findings.num_wanted
    return None if before is None else min(before, findings.num_wanted)


def ready(
    observed: Observed,
    placement: Placement,
    findings: Findings,
    said: Mapping[ConditionType, Said],
) -> Said:
    """The summary of the other conditions."""
    if observed.service.spec.suspend:
        return False, "Suspended", "spec.suspend is true: set it to false to run it again"
    is_growing = _is_growing(observed, findings, said)
    for kind in _WORST_FIRST:
        status, reason, message = said[kind]
        is_bad = status is (kind in _GOOD_WHEN_FALSE)
        if kind == "GPUsAvailable" and findings.num_ready >= findings.num_wanted:
            continue  # others stand in for what has no node
        if is_growing and (kind == "GPUsAvailable" or reason in _ON_THEIR_WAY):
            continue
        if is_bad:
            return False, reason, message
    if is_growing:
        return True, SCALING_UP, _more_to_come(findings, said)
    if findings.num_wanted == 0:
        return True, "ScaledToZero", f"no replica is wanted: {_how_to_start(observed)}"
    num_more = sum(placement.replicas.values()) - findings.num_wanted
    more = (
        f"; for {num_more} more there is no node" if placement.short_since and num_more > 0 else ""
    )
    if findings.num_wanted == 1:
        return True, "AllReady", f"the only replica is ready{more}"
    return True, "AllReady", f"all {findings.num_wanted} replicas are ready{more}"


def _is_growing(observed: Observed, findings: Findings, said: Mapping[ConditionType, Said]) -> bool:
    """Whether replicas come to those that were promised, and these serve.

    From none at all, too, where there may be none: requests wait meanwhile. But only as long as
    there is a node: else they would wait in vain.
    """
    least = promised(observed, findings)
    if least is None or findings.num_ready >= findings.num_wanted:
        return False
    spec = observed.service.spec
    if spec.scaling.mode == "Auto":
        least = max(least, min(spec.scaling.min_replicas, findings.num_wanted))
    least = max(least, sum(one.min_replicas for one in spec.accelerators))
    if findings.num_ready == 0 and said["GPUsAvailable"][0] is False:
        return False
    return findings.num_ready >= least


def _more_to_come(findings: Findings, said: Mapping[ConditionType, Said]) -> str:
    num_more = findings.num_wanted - findings.num_ready
    served = (
        f"{findings.num_ready} of {num_replicas(findings.num_wanted)} are ready, no fewer than"
        f" before, and {num_more} more {'is on its' if num_more == 1 else 'are on their'} way"
        if findings.num_ready
        else f"requests wait for {num_replicas(findings.num_wanted)}, on their way from none"
    )
    has_gpus, reason, message = said["GPUsAvailable"]
    return f"{served}; {reason}: {message}" if has_gpus is False else served


def _how_to_start(observed: Observed) -> str:
    """What brings a first replica."""
    if observed.service.spec.scaling.mode == "Auto":
        if observed.service.spec.scaling.max_replicas == 0:
            return "scaling.maxReplicas is 0: set it to 1 or more"
        if observed.is_scaling:
            return "the first request brings one"
        return "this operator starts none by itself; set scaling.minReplicas to 1 or more"
    return "set spec.replicas to 1 or more, by kubectl scale for instance"
