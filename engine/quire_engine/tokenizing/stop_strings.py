"""Finds stop strings in text that arrives in pieces."""

from collections.abc import Sequence


class StopStrings:
    """Cuts one output's text at the first stop string.

        text     H e l l o # # # w o r l d          stop "###"
        shown    H e l l o
        held               # #                      may be the beginning of a stop string

    The match that ends first wins; of those that end at the same character, the longest. So the
    answer doesn't depend on how the text was cut into pieces.

    Parameters
    ----------
    stops
        Strings that end the text; none may be empty.
    include_stop
        Whether the stop string itself is part of the output.

    Example
    -------
    >>> stops = StopStrings(["###"])
    >>> stops.push("Hello##"), stops.push("#world")
    ('Hello', '')
    >>> stops.found
    '###'
    """

    def __init__(self, stops: Sequence[str], *, include_stop: bool = False) -> None:
        if not all(stops):
            raise ValueError("a stop string must not be empty")
        self._stops = tuple(stops)
        self._include_stop = include_stop
        self._most_held = max((len(stop) for stop in self._stops), default=1) - 1
        self._held = ""
        self.found: str | None = None
        """The stop string that was found; after that, all text is dropped."""

    def push(self, text: str, *, may_end: bool = True) -> str:
        """Take the next piece of text and return what can be shown.

        Parameters
        ----------
        may_end
            False for text that no stop string may end in; one may still begin there.
        """
        if self.found is not None:
            return ""
        if not self._stops:
            return text
        after, text = len(self._held), self._held + text
        match = self._first_match(text, after) if may_end else None
        if match is not None:
            start, end = match
            self.found, self._held = text[start:end], ""
            return text[: end if self._include_stop else start]
        cut = len(text) - self._num_held(text)
        self._held = text[cut:]
        return text[:cut]

    def finish(self) -> str:
        """Return what was held back, as no stop string can follow any more."""
        text, self._held = self._held, ""
        return text

    def _first_match(self, text: str, after: int) -> tuple[int, int] | None:
        """Return (start, end) of the match that ends first of those that end behind `after`."""
        firsts = (max(after + 1 - len(stop), 0) for stop in self._stops)
        starts = (
            (text.find(stop, first), stop) for stop, first in zip(self._stops, firsts, strict=True)
        )
        ends = [(start + len(stop), start) for start, stop in starts if start >= 0]
        if not ends:
            return None
        end, start = min(ends)
        return start, end

    def _num_held(self, text: str) -> int:
        """Return how many characters at the end may be the beginning of a stop string."""
        for length in range(min(self._most_held, len(text)), 0, -1):
            tail = text[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
