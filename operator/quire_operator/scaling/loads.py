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


def keep_apart(loads: Sequence[Loads], quick: Sequence[Loads]) -> list[list[Loads]]:
    """Ways to spare slow accelerators the prompts that are long for them; empty: none is.

    The slower ones are spared, first the slowest alone and last all that are slower than the
    fastest, by how many buckets are quick on them; the others take whatever they can serve. Which
    way is best depends on what there is: a fast one that is not bought takes nothing from others.
    All are spared besides, where everything is quick on some.

    Parameters
    ----------
    loads, quick
        By accelerator, of all that it can serve and of what is quick on it.
    """
    nums = [int(one.are_served.sum()) for one in quick]
    least_of_whole = sorted(set(nums))[1:]
    if quick and np.all(np.any([one.are_served for one in quick], axis=0)):
        least_of_whole.append(len(quick[0]) + 1)
    ways = [
        [whole if num >= least else own for own, whole, num in zip(quick, loads, nums, strict=True)]
        for least in least_of_whole
    ]
    # where all are spared the same, or nothing is left to those that are, nothing is gained
    return [way for at, way in enumerate(ways) if _is_any_spared(way, [loads, *ways[:at]][-1])]


def _is_any_spared(way: Sequence[Loads], before: Sequence[Loads]) -> bool:
    """Whether more accelerators are spared something than before, and have a part in it."""
    return any(
        own is not other and own.are_served.any() for own, other in zip(way, before, strict=True)
    )
