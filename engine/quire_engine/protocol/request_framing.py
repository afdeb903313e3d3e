"""What a request's head has to be beyond what the parser sees to, and how its body is framed.

**Heads** (RFC 9112, sections 3.2 and 6.1): exactly one Host, which may be missing from HTTP/1.0; no
other coding of a body than chunks. Who disagrees with a proxy in front on where a request ends or
whom it is for, answers what nobody asked. A target may name its host itself, which counts then.

**Upgrades**: a request that asks for another protocol goes on as if it had not. A server may ignore
`Upgrade` (RFC 9110, section 7.8), and Java's HTTP client and `curl --http2` ask so with each first
request, bodies and all. httptools takes such a request's head for its end: what follows has to go
through another parser, which is told how long the body is.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

Headers = list[tuple[bytes, bytes]]
"""Names in lower case."""

_ABSOLUTE = re.compile(rb"https?://([^/?#]+)(.*)", re.IGNORECASE | re.DOTALL)
_HOST = re.compile(rb"(?:\[[0-9A-Za-z:.%]+\]|[-A-Za-z0-9._~!$&'()*+,;=%]*)(?::[0-9]*)?")
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


def find_fault(headers: Headers, *, is_http_1_0: bool) -> tuple[int, str] | None:
    """Return what is wrong with a request's head, as a status and a message; None: nothing."""
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) > 1 or not (hosts or is_http_1_0):
        return 400, f"A request names one host in the header Host; this one has {len(hosts)}."
    if hosts and not is_host(hosts[0].strip()):
        return 400, "Host: must be the name of a host, and its port after a colon."
    codings = [value.strip().lower() for name, value in headers if name == b"transfer-encoding"]
    if codings and is_http_1_0:
        return 400, "HTTP/1.0 has no Transfer-Encoding: send Content-Length."
    if codings not in ([], [b"chunked"]):
        return 501, "Transfer-Encoding: only chunked is understood; send the body as it is."
    return None


@lru_cache(maxsize=1024)
def is_host(value: bytes) -> bool:
    """Whether this is a host as a header or a URL names it; nothing is one, too."""
    return _HOST.fullmatch(value) is not None


def in_origin_form(target: bytes, headers: Headers) -> bytes | None:
    """Return the path and query of a target in absolute form; its host takes Host's place.

    Parameters
    ----------
    headers
        Host is changed in them.

    Returns
    -------
    None if it is in no such form, or names no host.
    """
    match = _ABSOLUTE.fullmatch(target)
    if match is None or not is_host(match[1]):
        return None
    headers[:] = [pair for pair in headers if pair[0] != b"host"] + [(b"host", match[1])]
    return match[2] if match[2].startswith(b"/") else b"/" + match[2]
