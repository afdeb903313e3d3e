"""How many standard deviations are kept between the predicted mean and the ceiling.

Too few, and requests are preempted; too many, and blocks lie idle. Nobody has to tune it: every
preemption for want of a block raises it, and every request that ends lowers it a little, so that
it settles where about TARGET of the requests are preempted, whatever the lengths are like and
however wrong the predictions.

Preemptions come in bursts: by the time that blocks run out, too much has been let in for minutes,
and what is let in from now on cannot help at once. So those that follow each other closely raise
it less and less: they are one error, and not many.
"""

TARGET = 0.002
"""Share of requests that may be preempted, each alone."""
RISE = 0.25
"""Deviations that one preemption adds."""
FALL = RISE * TARGET
"""Deviations that one request's end takes away."""
NEXT_RISE = 0.7
"""A preemption soon after another adds so much of what that one added."""
NUM_ENDS_OF_BURST = 16
"""So many ends after a burst, a preemption counts in full again."""
LARGEST = 3.0
FIRST_Z = 1.5
"""Before anything is known: a shortage costs more than some idle blocks."""


class SafetyMargin:
    """The z of predicted occupancy, learnt while serving; within 0 and 3."""

    __slots__ = ("_rise", "z")

    def __init__(self, z: float = FIRST_Z) -> None:
        self.z = z
        self._rise = RISE

    def count_preemption(self) -> None:
        """A request lost its blocks because none was free."""
        self.z = min(self.z + self._rise, LARGEST)
        self._rise *= NEXT_RISE

    def count_end(self) -> None:
        """A request ended."""
        self.z = max(self.z - FALL, 0.0)
        self._rise = min(self._rise + RISE / NUM_ENDS_OF_BURST, RISE)
