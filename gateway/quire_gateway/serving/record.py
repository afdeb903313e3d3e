"""What is known of a request when it ends, for metrics, the log and traces.

Nothing that a client or a model said is in it.
"""

import logging
from dataclasses import dataclass

from quire_engine.protocol.token_usage import TokenUsage
from quire_gateway.serving.trace_context import TraceContext

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Record:
    """One request; times are the event loop's."""

    request_id: bytes
    trace: TraceContext
    started_at: float
    path: str = ""
    service: str = ""
    key: str = ""
    endpoint: str = ""
    """The last one that was tried."""
    num_attempts: int = 0
    reason: str = ""
    """Why it was refused or broke off."""
    status: int = 0
    """0: the client left."""
    first_byte_at: float | None = None
    usage: TokenUsage | None = None


def log_request(record: Record, ended_at: float) -> None:
    """Write a request's line: a sentence for people, the fields for machines."""
    usage, first_at = record.usage, record.first_byte_at
    seconds = ended_at - record.started_at
    fields = {
        "request_id": record.request_id.decode(),
        "trace_id": record.trace.trace_id,
        "service": record.service,
        "key": record.key,
        "engine": record.endpoint,
        "num_attempts": record.num_attempts,
        "status": record.status,
        "reason": record.reason,
        "seconds": round(seconds, 6),
        "first_byte_seconds": None if first_at is None else round(first_at - record.started_at, 6),
        "prompt_tokens": usage and usage.num_prompt_tokens,
        "completion_tokens": usage and usage.num_output_tokens,
        "cached_tokens": usage and usage.num_cached_tokens,
    }
    words = " ".join(f"{name}={value}" for name, value in fields.items() if value not in ("", None))
    _log.info("request %s", words, extra={"fields": fields})
