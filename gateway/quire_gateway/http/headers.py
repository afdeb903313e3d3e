"""Which headers pass from one side to the other.

Of a client's: all but those of the connection, those of proxies and browsers (an engine would take
the request for another's), its key, and `x-quire-*`, which the gateway alone may send. Of an
engine's: all but those of the connection and its state.
"""

from collections.abc import Iterable

Headers = list[tuple[bytes, bytes]]
"""Names in lower case."""

_CONNECTION = frozenset(
    {
        b"connection",
        b"content-length",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_NOT_TO_ENGINES = _CONNECTION | {
    b"authorization",
    b"cookie",
    b"expect",
    b"forwarded",
    b"host",
    b"http2-settings",
    b"origin",
    b"traceparent",
    b"tracestate",
    b"via",
    b"x-real-ip",
    b"x-request-id",
}
_PREFIXES_NOT_TO_ENGINES = (b"x-quire-", b"x-forwarded-", b"sec-fetch-")
_NOT_TO_CLIENTS = _CONNECTION | {
    b"set-cookie",
    b"x-quire-state",
    b"x-quire-usage",
    b"x-request-id",
}
"""The id is the one that the gateway knows the request by."""


def to_engine(headers: Headers) -> Headers:
    """Return what an engine is sent of a client's headers."""
    return [pair for pair in _without_named(headers) if _is_for_engines(pair[0])]


def _is_for_engines(name: bytes) -> bool:
    """Whether a header may pass; what others take for a dash is one here."""
    name = name.replace(b"_", b"-")
    return name not in _NOT_TO_ENGINES and not name.startswith(_PREFIXES_NOT_TO_ENGINES)


def to_client(headers: Headers) -> Headers:
    """Return what a client is sent of an engine's headers."""
    return [pair for pair in _without_named(headers) if pair[0] not in _NOT_TO_CLIENTS]


def find(headers: Headers, name: bytes) -> bytes | None:
    """Return the only value of a header; None if there is none, or several."""
    values = [value for key, value in headers if key == name]
    return values[0].strip() if len(values) == 1 else None


def write_fields(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Write the lines of a head; the parsers let no line break into names and values."""
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])


def write_head(first_line: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Write a head."""
    return b"%b\r\n%b\r\n" % (first_line, write_fields(headers))


def _without_named(headers: Headers) -> Headers:
    """Leave out headers that are said to be for this connection alone."""
    for name, _ in headers:
        if name == b"connection":
            break
    else:
        return headers
    values = [value for name, value in headers if name == b"connection"]
    named = {token.strip().lower() for value in values for token in value.split(b",")}
    return [pair for pair in headers if pair[0] not in named]
