"""What a gateway predicts that a request costs, and refusing by that alone what is hopeless.

Tokenizing a long prompt only to refuse it is work that an engine under pressure does not have to
spare. The hint is compared with the latest statistics; the core decides on all others.
"""

import math
from dataclasses import dataclass

import msgspec

from quire_engine.protocol.messages import CoreStats, Priority, Thresholds
from quire_engine.server.errors import ApiError

_LARGEST = 2.0**53
_RETRY_SECONDS = 1.0
"""Without the prompt nobody can predict when there is room: soon, and then the core will say."""


@dataclass(frozen=True, slots=True)
class CostHint:
    """The request's predicted size; what is absent is 0."""

    blocks: float = 0.0
    tokens: float = 0.0

    def num_blocks(self, block_size: int) -> int:
        """Blocks that it needs."""
        return math.ceil(max(self.blocks, self.tokens / block_size))


class _HintBody(msgspec.Struct, forbid_unknown_fields=True):
    blocks: float = 0.0
    tokens: float = 0.0


def read_cost_hint(text: str) -> CostHint | None:
    """Read `blocks=N`, `tokens=N`, both with a semicolon between, or JSON; None if malformed."""
    try:
        if text.startswith("{"):
            body = msgspec.json.decode(text, type=_HintBody)
        else:
            pairs = dict(part.strip().split("=", 1) for part in text.split(";"))
            body = msgspec.convert(pairs, _HintBody, strict=False)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    sizes = (body.blocks, body.tokens)
    return CostHint(*sizes) if all(0 <= size <= _LARGEST for size in sizes) else None


def refuse_hopeless(
    hint: CostHint,
    *,
    priority: Priority,
    starts_now: bool,
    block_size: int,
    stats: CoreStats,
    thresholds: Thresholds,
) -> None:
    """Refuse a request that by its hint cannot be served, or not now if it does not wait.

    Raises
    ------
    ApiError
        400 if the engine could never hold it, 429 if it is to start now and there is no room.
    """
    blocks, needed = stats.blocks, hint.num_blocks(block_size)
    if needed > blocks.total:
        raise ApiError(
            400,
            f"x-quire-cost-hint: {needed} blocks never fit: the engine has {blocks.total}.",
            param="x-quire-cost-hint",
            code="never_fits",
        )
    is_empty = stats.num_running == stats.num_waiting == 0
    if not starts_now or is_empty:
        return
    is_interactive = priority is Priority.INTERACTIVE
    ceiling = thresholds.admission if is_interactive else thresholds.background
    reserved = blocks.reserved - (blocks.yielding if is_interactive else 0)
    if needed > ceiling * blocks.total - reserved:
        raise ApiError(
            429,
            "There is no room to start this request now. Send the request again later.",
            code="rate_limit_exceeded",
            retry_after_seconds=_RETRY_SECONDS,
        )
