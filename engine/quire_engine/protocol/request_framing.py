"""Going on with a request that asks for another protocol, as if it had not.

A server may ignore `Upgrade` (RFC 9110, section 7.8), and Java's HTTP client and `curl --http2` ask
so with each first request, bodies and all. httptools takes such a request's head for its end: what
follows has to go through another parser, which is told how long the body is.
"""

from collections.abc import Iterable

_FRAMING = (b"content-length", b"transfer-encoding")


def framing_head(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """Return a head that announces the same body and says nothing else; None if there is none.

    Parameters
    ----------
    headers
        Names in lower case, and values, of a request that was parsed.
    """
    found = [(name, value) for name, value in headers if name in _FRAMING]
    if not found or all(value.strip(b"0 ") == b"" for _, value in found):
        return None
    lines = [b"%b: %b\r\n" % pair for pair in found]
    return b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(lines)
