"""What requests take of a replica, by bucket: arrays, for there are hundreds in each decision."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from quire_operator.scaling.lengths import Array


class Load(NamedTuple):
    """What a request a second of one bucket takes of one replica; 1 is the target."""

    memory: float
    """Blocks or seats."""
    time: float


@dataclass(frozen=True, slots=True, eq=False)
class Loads:
    """Of one accelerator; infinity: it cannot serve requests of such a bucket."""

    memory: Array
    time: Array

    @classmethod
    def of(cls, loads: Sequence[Load | None]) -> "Loads":
        """By bucket; None: it cannot serve such."""
        nothing = Load(math.inf, math.inf)
        memory, time = zip(*(one or nothing for one in loads), strict=True)
        return cls(np.array(memory), np.array(time))

    @classmethod
    def alike(cls, load: Load, num_buckets: int) -> "Loads":
        """The same of all buckets."""
        return cls(np.full(num_buckets, load.memory), np.full(num_buckets, load.time))

    @classmethod
    def none(cls, num_buckets: int) -> "Loads":
        """It can serve nobody."""
        return cls.alike(Load(math.inf, math.inf), num_buckets)

    @property
    def are_served(self) -> Array:
        """Whether it can serve requests, by bucket."""
        return np.isfinite(self.memory)

    def filled(self, buckets: Array, other: "Loads") -> "Loads":
        """With another's in these buckets, which are by number or by whether."""
        memory, time = self.memory.copy(), self.time.copy()
        memory[buckets], time[buckets] = other.memory[buckets], other.time[buckets]
        return Loads(memory, time)

    def __len__(self) -> int:
        return len(self.memory)

    def __getitem__(self, bucket: int) -> Load | None:
        memory = float(self.memory[bucket])
        return Load(memory, float(self.time[bucket])) if math.isfinite(memory) else None

    def __iter__(self) -> Iterator[Load | None]:
        return map(self.__getitem__, range(len(self)))


def keep_apart(loads: Sequence[Loads], quick: Sequence[Loads]) -> list[Loads] | None:
    """Loads where each accelerator is spared the prompts that are long for it; None: none is.

    What is quick on none goes to those on which the most is, which are spared nothing then. One on
    which nothing is quick has nothing: faster ones are not spared what it would take.

    Parameters
    ----------
    loads, quick
        By accelerator, of all that it can serve and of what is quick on it.
    """
    nums = [int(one.are_served.sum()) for one in quick]
    is_left = not np.all(np.any([one.are_served for one in quick], axis=0))
    apart = [
        whole if is_left and num == max(nums) else own
        for own, whole, num in zip(quick, loads, nums, strict=True)
    ]
    is_spared = any(
        own is not whole and own.are_served.any() for own, whole in zip(apart, loads, strict=True)
    )
    return apart if is_spared else None
