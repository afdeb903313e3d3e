"""A request's place in its trace, as W3C's Trace Context has it."""

import re
from dataclasses import dataclass

from quire_gateway.http.headers import Headers
from quire_gateway.http.request import Request
from quire_gateway.serving.random_ids import random_id

_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NAMES = frozenset({b"traceparent", b"tracestate"})


@dataclass(slots=True)
class TraceContext:
    """Which trace a request belongs to."""

    trace_id: str
    headers: Headers
    """What says so to whoever is asked next."""
    is_made: bool = False
    """Whether the client sent none that can be used."""


def trace_of(request: Request) -> TraceContext:
    """Read a client's context; make one where there is none that can be used."""
    parent, headers = request.find(b"traceparent"), request.headers
    match = None if parent is None else _TRACEPARENT.fullmatch(parent)
    if match is not None and _is_valid(match):
        return TraceContext(match[2].decode(), [one for one in headers if one[0] in _NAMES])
    trace_id = random_id()
    made = f"00-{trace_id}-{random_id()[:16]}-01"
    return TraceContext(trace_id, [(b"traceparent", made.encode())], is_made=True)


def _is_valid(match: re.Match[bytes]) -> bool:
    version, trace_id, span_id, _, more = match.groups()
    is_known = version != b"ff" and (more is None or version != b"00")
    return is_known and trace_id.strip(b"0") != b"" and span_id.strip(b"0") != b""
