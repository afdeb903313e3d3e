"""Answers that are asked for again within a decision."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

_Answer = TypeVar("_Answer")


class Newest(Generic[_Answer]):
    """The newest answers to questions about large objects, which are known by who they are."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[Hashable, ...], tuple[tuple[object, ...], _Answer]]
        self._kept = OrderedDict()

    def find(
        self, objects: Sequence[object], question: Hashable, answer: Callable[[], _Answer]
    ) -> _Answer:
        """Return the answer that is kept, or a new one.

        Parameters
        ----------
        objects
            What is never changed: the same object has the same answer.
        question
            What else the answer depends on.
        """
        key = (*map(id, objects), question)
        known = self._kept.get(key)
        if known is not None:
            return known[1]
        # what is kept holds its objects, so that no others can have their ids
        found = answer()
        self._kept[key] = tuple(objects), found
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return found
