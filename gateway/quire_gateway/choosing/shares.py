"""Parts of the traffic that scaling planned for each accelerator.

Who has got less than its part looks faster than it is, and who has got more looks slower, the more
it is away from its part. An engine without room, or too slow for a deadline, is never
chosen for its part's sake.
"""

from collections.abc import Mapping

_BOUNDS = (0.8, 1.25)
"""What is known of this prompt and of these queues says more than a plan: four times as fast, and
prompts that are too long for all others found its engines full."""
_STIFFNESS = 4
"""A part is kept within a twentieth where engines are that much faster or slower than others."""
_LEAST_SHARE = 0.01
"""A part of nothing is held like this one: its engines are there for when others have no room."""
_MEMORY = 1 / 256
"""A request of mean size counts for so much of what is remembered."""
_MOST_WEIGHT = 0.1


class Lean:
    """By what the predicted time at an accelerator's engines is multiplied."""

    __slots__ = ("factor",)

    def __init__(self) -> None:
        self.factor = 1.0


class TrafficShares:
    """Planned and actual parts of one service's accelerators."""

    def __init__(self) -> None:
        self._planned: dict[str, float] = {}
        self._sent: dict[str, float] = {}
        self._leans: dict[str, Lean] = {}
        self._mean_tokens = 0.0
        """Of a request."""

    def lean(self, accelerator: str) -> Lean:
        """Return what the engines of an accelerator have in common."""
        return self._leans.setdefault(accelerator, Lean())

    def plan(self, shares: Mapping[str, float | None]) -> None:
        """Follow other parts from now on; accelerators without one are left to themselves."""
        known = {name: max(one, _LEAST_SHARE) for name, one in shares.items() if one is not None}
        total = sum(known.values())
        planned = {name: one / total for name, one in known.items()} if len(known) > 1 else {}
        if planned != self._planned:
            self._planned = planned
            self._sent = dict(planned)
            for lean in self._leans.values():
                lean.factor = 1.0

    def send(self, accelerator: str, num_tokens: float) -> None:
        """Count a request that goes to an accelerator."""
        if accelerator not in self._planned or num_tokens <= 0.0:
            return
        self._mean_tokens = self._mean_tokens or num_tokens
        self._mean_tokens += _MEMORY * (num_tokens - self._mean_tokens)
        weight = min(_MEMORY * num_tokens / self._mean_tokens, _MOST_WEIGHT)
        for name, planned in self._planned.items():
            part = self._sent[name] * (1.0 - weight) + (weight if name == accelerator else 0.0)
            self._sent[name] = part
            self.lean(name).factor = _factor(part / planned)


def _factor(ratio: float) -> float:
    return min(max(ratio**_STIFFNESS, _BOUNDS[0]), _BOUNDS[1])
