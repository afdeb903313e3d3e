"""What is said of a service when what is to be said of it is not simple.

A spec that the API server took and this version cannot read (it may be of a newer one), and a
status that the API server does not take: either would leave the resource with words that are not
true any more, and nobody would look for the reason in the operator's log.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import structs

from quire_operator.planner.conditions import stamp
from quire_operator.resource.reading import (
    InferenceService,
    InvalidResourceError,
    read_status,
    salvage_status,
)
from quire_operator.resource.status import (
    CONDITION_TYPES,
    Condition,
    ConditionType,
    InferenceServiceStatus,
)

_MAX_WORDS = 1000


def of_unreadable(
    body: Mapping[str, Any], error: InvalidResourceError, now: datetime
) -> InferenceServiceStatus:
    """The status of a service whose spec cannot be read: what ran runs on as it was."""
    try:
        before = read_status(body)
    except InvalidResourceError:
        before = salvage_status(body)
    generation = body["metadata"].get("generation", 0)
    words = (
        f"this version of quire cannot read the spec: {str(error)[:_MAX_WORDS]}; change that field,"
        " or upgrade the operator. What runs stays as it is"
    )
    return _not_ready(before, generation, "SpecNotUnderstood", words, now)


def of_refused(status: InferenceServiceStatus, words: str, now: datetime) -> InferenceServiceStatus:
    """A status that the API server has to take, in place of one that it did not."""
    bare = InferenceServiceStatus(
        observed_generation=status.observed_generation,
        conditions=status.conditions,
        promised_replicas=status.promised_replicas,
        kept_replicas=status.kept_replicas,
        claims=status.claims,
    )
    told = f"the API server did not take the status: {words[:_MAX_WORDS]}"
    return _not_ready(bare, status.observed_generation, "StatusRefused", told, now)


def of_failure(service: InferenceService, now: datetime) -> InferenceServiceStatus:
    """The status of a service that no look goes well at, by an error of the operator's own."""
    words = (
        "the operator fails on this service by an error of its own, and goes on trying: its log"
        f" says more, with {'/'.join(service.key)}. What runs stays as it is"
    )
    return _not_ready(service.status, service.generation, "InternalError", words, now)


def _not_ready(
    before: InferenceServiceStatus, generation: int, reason: str, message: str, now: datetime
) -> InferenceServiceStatus:
    """The same with Ready False and Degraded True, both for a reason."""
    known = {one.type: one for one in before.conditions}

    def condition(kind: ConditionType) -> Condition:
        status = {"Ready": "False", "Degraded": "True"}.get(kind)
        old = known.get(kind)
        if status is None and old is not None:
            return old
        is_same = old is not None and old.status == status
        return Condition(
            type=kind,
            status=status or "Unknown",  # type: ignore[arg-type]
            reason=reason,
            message=message if status else "",
            last_transition_time=old.last_transition_time if old and is_same else stamp(now),
            observed_generation=generation,
        )

    return structs.replace(
        before,
        observed_generation=generation,
        conditions=tuple(map(condition, CONDITION_TYPES)),
    )
