"""On which terms a request comes: its `x-quire-*` headers, checked.

The gateway decides which of them clients may send; an engine believes those it gets.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from starlette.datastructures import Headers

from quire_engine.protocol.messages import Priority
from quire_engine.server.cost_hint import CostHint, read_cost_hint
from quire_engine.server.errors import ApiError

T = TypeVar("T")

MAX_NUMBER = 2**53
"""Larger whole numbers are not exact in every client's JSON."""
MAX_PREFIX_CHUNKS = 256
_CHUNK = re.compile(r"[0-9a-fA-F]{8,64}")
_GATEWAY = re.compile(r"([A-Za-z0-9._:-]{1,64}) *; *([0-9]{1,16})")
_SALT = re.compile(r"[!-~]{1,256}")
_PRIORITIES = {"interactive": Priority.INTERACTIVE, "background": Priority.BACKGROUND}


@dataclass(frozen=True, slots=True)
class RequestTerms:
    """What the headers say; the defaults stand for headers that are absent."""

    priority: Priority | None = None
    """Wins over the body's."""
    deadline_seconds: float | None = None
    starts_now: bool = False
    holds_room: bool = False
    cost_hint: CostHint | None = None
    prefix_chunks: tuple[str, ...] = ()
    gateway: str = ""
    gateway_counter: int = 0
    cache_salt: str = ""

    def priority_with(self, body_priority: int | None) -> Priority:
        """The class of a request whose body has this priority.

        vLLM's convention: the lower, the more urgent, and 0 is the default. Above is background.
        """
        if self.priority is not None:
            return self.priority
        is_background = body_priority is not None and body_priority > 0
        return Priority.BACKGROUND if is_background else Priority.INTERACTIVE


def read_terms(headers: Headers) -> RequestTerms:
    """Read all `x-quire-*` headers that say on which terms a request comes.

    Raises
    ------
    ApiError
        400, naming the header and what it takes.
    """
    admit = _read(headers, "x-quire-admit", _admit, "now or wait")
    gateway, counter = _read(
        headers, "x-quire-gateway", _gateway, f"NAME;COUNTER, the counter at most {MAX_NUMBER}"
    ) or ("", 0)
    deadline = f"milliseconds from now, a whole number from 1 to {MAX_NUMBER}"
    chunks = f"up to {MAX_PREFIX_CHUNKS} hashes of 8 to 64 hexadecimal digits, with commas between"
    return RequestTerms(
        priority=_read(headers, "x-quire-priority", _PRIORITIES.get, "interactive or background"),
        deadline_seconds=_read(headers, "x-quire-deadline-ms", _deadline_seconds, deadline),
        starts_now=admit == "now",
        holds_room=admit == "wait",
        cost_hint=_read(
            headers,
            "x-quire-cost-hint",
            read_cost_hint,
            'blocks=N, tokens=N or {"blocks": N}, with N a number from 0 to 2^53',
        ),
        prefix_chunks=_read(headers, "x-quire-prefix", _chunks, chunks) or (),
        gateway=gateway,
        gateway_counter=counter,
        cache_salt=_read(headers, "x-quire-salt", _salt, "1 to 256 visible characters") or "",
    )


def _read(headers: Headers, name: str, parse: Callable[[str], T | None], accepted: str) -> T | None:
    values = headers.getlist(name)
    if not values:
        return None
    parsed = parse(values[0].strip()) if len(values) == 1 else None
    if parsed is None:
        raise ApiError(
            400, f"{name}: is malformed; it takes {accepted}.", param=name, code="invalid_header"
        )
    return parsed


def _admit(value: str) -> str | None:
    return value if value in ("now", "wait") else None


def _number(value: str) -> int | None:
    number = int(value) if re.fullmatch(r"[0-9]{1,16}", value) else None
    return number if number is not None and number <= MAX_NUMBER else None


def _deadline_seconds(value: str) -> float | None:
    milliseconds = _number(value)
    return milliseconds / 1000 if milliseconds else None


def _gateway(value: str) -> tuple[str, int] | None:
    match = _GATEWAY.fullmatch(value)
    counter = _number(match[2]) if match else None
    return (match[1], counter) if match and counter is not None else None


def _chunks(value: str) -> tuple[str, ...] | None:
    chunks = tuple(chunk.strip() for chunk in value.split(","))
    is_right = len(chunks) <= MAX_PREFIX_CHUNKS and all(map(_CHUNK.fullmatch, chunks))
    return tuple(chunk.lower() for chunk in chunks) if is_right else None


def _salt(value: str) -> str | None:
    return value if _SALT.fullmatch(value) else None
