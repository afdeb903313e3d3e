"""Server-sent events, passed on whole: what breaks off in the middle can still be told as such."""

MAX_EVENT_BYTES = 1 << 20
"""A longer event is passed on in pieces."""


class EventBorder:
    """Holds back the begun event at the end of each piece."""

    __slots__ = ("_begun",)

    def __init__(self) -> None:
        self._begun = b""

    def whole(self, piece: bytes) -> bytes:
        """Return what is complete of what came so far."""
        if not self._begun and piece.endswith(b"\n\n"):
            return piece
        piece = self._begun + piece
        end = piece.rfind(b"\n\n") + 2
        if end == 1:  # no border
            end = len(piece) if len(piece) > MAX_EVENT_BYTES else 0
        self._begun = piece[end:]
        return piece[:end]

    def rest(self) -> bytes:
        """Return what is held back, at the end of a stream that ended as it should."""
        rest, self._begun = self._begun, b""
        return rest
