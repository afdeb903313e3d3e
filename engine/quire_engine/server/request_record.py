"""What is known of one HTTP request when it ends: for its line in the log and for its trace.

The edge opens a record for each request; whatever runs for that request finds it by
`current_record` and adds to it. It holds numbers and names of ours, and nothing that a client sent
but its request id, which is checked.
"""

import re
import time
import uuid
from contextvars import ContextVar
from typing import Any, Protocol

from starlette.types import Scope

from quire_engine.protocol.sampling import SamplingParams

REQUEST_ID_HEADER = "x-request-id"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
"""Ids of other systems; none of it can end a line or a field of the log."""

current_record: ContextVar["RequestRecord | None"] = ContextVar("current_record", default=None)
"""The request that is being answered here; None outside of one."""


def current_request_id() -> str | None:
    """The id of that request; None outside of one."""
    record = current_record.get()
    return None if record is None else record.request_id


class GenerationFigures(Protocol):
    """One sequence that was generated for a request; times in seconds."""

    sampling: SamplingParams
    prompt_token_ids: list[int]
    """The same object for sequences of one prompt."""
    num_prompt_tokens: int
    num_generated: int
    num_cached: int
    arrived_at: float
    """By `time.perf_counter`, as all moments here."""
    first_token_at: float | None
    ended_at: float | None
    queue_seconds: float | None
    """From arrival to the first start; None if it never started."""
    prefill_seconds: float | None
    """From there to the first token."""
    decode_seconds: float | None
    """From the first token to the last."""
    finish_reason: str


class RequestRecord:
    """One request from its head to the last byte of its answer."""

    __slots__ = (
        "ended_at",
        "generations",
        "method",
        "request_id",
        "scope",
        "started_at",
        "started_ns",
        "status",
    )

    def __init__(self, scope: Scope, presented_id: str | None) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        is_fit = presented_id is not None and _REQUEST_ID.fullmatch(presented_id)
        self.request_id = presented_id if is_fit and presented_id else uuid.uuid4().hex
        self.started_at = time.perf_counter()
        self.started_ns = time.time_ns()
        self.ended_at = self.started_at
        self.status = 0
        """0 until the answer begins, and when the client left before."""
        self.generations: list[GenerationFigures] = []

    @property
    def route(self) -> str:
        """The route's pattern, such as /v1/models/{model_id:path}; never the path that came."""
        route: Any = self.scope.get("route")
        return getattr(route, "path", "none")

    def end(self) -> None:
        """Note the time."""
        self.ended_at = time.perf_counter()

    def ns_of(self, moment: float) -> int:
        """A moment by `time.perf_counter` as nanoseconds since 1970."""
        return self.started_ns + round(1e9 * (moment - self.started_at))
