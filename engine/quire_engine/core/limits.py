"""The limits that a configuration sets, and what they mean for one request."""

from quire_engine.config import EngineConfig
from quire_engine.protocol.messages import AddRequest, Priority, Thresholds


def thresholds_of(config: EngineConfig) -> Thresholds:
    """Return the limits that an engine begins with."""
    admission = config.admission
    return Thresholds(
        admission=admission.admission_ceiling,
        background=admission.background_ceiling,
        slo_time_to_first_token_seconds=admission.slo_time_to_first_token,
        slo_time_per_output_token_seconds=admission.slo_time_per_output_token,
        max_queue_seconds=admission.max_queue_seconds,
        max_waiting_requests=config.scheduler.max_waiting_requests,
    )


def deadline_of(request: AddRequest, limits: Thresholds, now: float) -> float | None:
    """When the first token is due: by the request's own wish or the SLO, whichever is first.

    One for which room is held has only its own wish: it came to wait longer than the SLO.
    """
    seconds = request.deadline_seconds
    slo = limits.slo_time_to_first_token_seconds
    if slo is not None and request.priority is Priority.INTERACTIVE and not request.holds_room:
        seconds = slo if seconds is None else min(seconds, slo)
    return None if seconds is None else now + seconds
