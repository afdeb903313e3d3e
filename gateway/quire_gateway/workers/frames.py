"""What workers and the decider tell each other.

A request has a number of its worker's. `Ask` is answered by `Go` or `Refused`, now or when there
is room; after a `Settled` that is not the end the next of these comes. `Left` ends it at any time.
"""

from typing import Literal

import msgspec

from quire_engine.protocol.token_usage import TokenUsage
from quire_gateway.errors import ApiError
from quire_gateway.serving.directory import ServiceKey
from quire_gateway.serving.relay import Outcome
from quire_gateway.serving.wish import Wish

Kind = Literal["done", "refused", "failed", "broken"]
Usage = tuple[int, int, int]
LabelledCounts = list[tuple[tuple[str, ...], float]]
LabelledObservations = list[tuple[tuple[str, ...], list[int], float]]


class Frame(msgspec.Struct, array_like=True, gc=False):
    """One of them."""


class Ask(Frame, tag=2):
    """A request wants an engine."""

    number: int
    service: ServiceKey
    digest: str
    """Of its key; empty for a service that is open."""
    wish: Wish


class Report(Frame, tag=3):
    """How an attempt ended."""

    kind: Kind
    status: int
    reason: str
    retry_after_seconds: float
    is_nobodys_fault: bool
    usage: Usage | None
    first_byte_at: float | None


class Settled(Frame, tag=4):
    """An attempt has ended."""

    number: int
    report: Report


class Left(Frame, tag=5):
    """The request wants no engine any more."""

    number: int
    was_sent: bool


class Alone(Frame, tag=6):
    """A request has ended that was not decided here: another decider's, or nobody's."""

    service: ServiceKey
    digest: str
    wish: Wish
    report: Report
    was_counted: bool
    """Whether this decider was asked before, and fell silent."""


class Totals(Frame, tag=7):
    """All that a worker has counted since it started, by the metrics' names."""

    counts: dict[str, LabelledCounts]
    observations: dict[str, LabelledObservations]
    inquiry: int
    """The `Count` that asked for it; 0: none did."""


class Go(Frame, tag=8):
    """A request may go to this engine."""

    number: int
    address: str
    counter: int
    holds_room: bool
    first_byte_seconds: float
    is_unpromised: bool
    """Both as in `Way`."""


class Refused(Frame, tag=9):
    """A request gets no engine."""

    number: int
    status: int
    message: str
    reason: str
    code: str
    param: str | None
    retry_after_seconds: float | None


class Silent(Frame, tag=10):
    """An engine hangs: what it was asked for will not be answered."""

    service: ServiceKey
    address: str


class Count(Frame, tag=11):
    """Tell all that was counted."""

    inquiry: int


class Welcome(Frame, tag=12):
    """The decider's first."""

    gateway: str
    """Under which engines report its counters."""


FromWorker = Ask | Settled | Left | Alone | Totals
FromDecider = Welcome | Go | Refused | Silent | Count


def report_of(outcome: Outcome, first_byte_at: float | None) -> Report:
    """Make of an outcome what is sent of it."""
    usage: Usage | None = None
    if outcome.usage is not None:
        counted = outcome.usage
        usage = counted.num_prompt_tokens, counted.num_output_tokens, counted.num_cached_tokens
    return Report(
        outcome.kind,
        outcome.status,
        outcome.reason,
        outcome.retry_after_seconds,
        outcome.is_nobodys_fault,
        usage,
        first_byte_at,
    )


def outcome_of(report: Report) -> Outcome:
    """Make the outcome of what was sent of it."""
    return Outcome(
        report.kind,
        report.status,
        report.reason,
        report.retry_after_seconds,
        report.is_nobodys_fault,
        report.usage and TokenUsage(*report.usage),
    )


def refused(number: int, error: ApiError) -> Refused:
    """Make of an error what is sent of it."""
    return Refused(
        number,
        error.status,
        error.message,
        error.reason,
        error.code,
        error.param,
        error.retry_after_seconds,
    )


def error_of(frame: Refused) -> ApiError:
    """Make the error of what was sent of it."""
    return ApiError(
        frame.status,
        frame.message,
        reason=frame.reason,
        code=frame.code,
        param=frame.param,
        retry_after_seconds=frame.retry_after_seconds,
    )
