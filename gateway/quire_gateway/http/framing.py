"""How an answer is framed, so that its client knows where it ends."""

from dataclasses import dataclass

from quire_gateway.errors import REASONS
from quire_gateway.http.headers import Headers, write_fields
from quire_gateway.http.request import Request

_STATUS_LINES = {
    status: b"HTTP/1.1 %d %b\r\n" % (status, reason.encode()) for status, reason in REASONS.items()
}


@dataclass(slots=True)
class AnswerHead:
    """The head of an answer."""

    text: bytes
    is_chunked: bool
    keeps_alive: bool
    """Whether the connection goes on after it."""


def frame_answer(
    request: Request | None,
    status: int,
    headers: Headers,
    length: int | None,
    *,
    keeps_alive: bool,
) -> AnswerHead:
    """Make the head of an answer.

    Parameters
    ----------
    request
        None for what could not be read.
    length
        Of the body; None if it is not known yet: then it comes in chunks, or, for HTTP/1.0, until
        the connection ends.
    keeps_alive
        Whether the connection may go on.
    """
    is_old = request is not None and request.is_http_1_0
    is_chunked = length is None and not is_old
    if length is not None:
        framing = b"content-length: %d\r\n" % length
    elif is_old:
        keeps_alive, framing = False, b""
    else:
        framing = b"transfer-encoding: chunked\r\n"
    if not keeps_alive:
        framing += b"connection: close\r\n"
    elif is_old:
        framing += b"connection: keep-alive\r\n"
    line = _STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status
    text = b"%b%b%b\r\n" % (line, write_fields(headers), framing)
    return AnswerHead(text, is_chunked, keeps_alive)
