"""How often each token of a text was generated, ready to be used as arrays."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_MIN_ROOM = 64


class TokenCounts:
    """The different tokens of one text; grows by a token in constant time.

    Parameters
    ----------
    known
        Tokens that are in the text without having been generated: they count 0 times.
    generated
        Tokens that have been generated so far.
    """

    def __init__(self, known: Sequence[int], generated: Sequence[int]) -> None:
        ids = np.unique(np.array([*known, *generated], np.int64))
        self._size = len(ids)
        self._ids = np.zeros(max(2 * self._size, _MIN_ROOM), np.int64)
        self._ids[: self._size] = ids
        self._times = np.zeros(len(self._ids), np.float32)
        self._places = {token: place for place, token in enumerate(ids.tolist())}
        for token in generated:
            self.add(token)

    @property
    def ids(self) -> NDArray[np.int64]:
        """[num_different]: each token once."""
        return self._ids[: self._size]

    @property
    def times(self) -> NDArray[np.float32]:
        """[num_different]: how often each was generated."""
        return self._times[: self._size]

    def add(self, token: int) -> None:
        """Count a generated token."""
        place = self._places.get(token)
        if place is None:
            place = self._new_place(token)
        self._times[place] += 1

    def _new_place(self, token: int) -> int:
        place = self._places[token] = self._size
        if place == len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
            self._times = np.concatenate([self._times, np.zeros_like(self._times)])
        self._ids[place] = token
        self._size += 1
        return place
