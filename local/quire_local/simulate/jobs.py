"""Requests of a trace, and what becomes of them."""

from dataclasses import dataclass
from enum import StrEnum
from math import inf

from quire_local.simulate.hardware import ServiceLevel


class Fate(StrEnum):
    """How a request ended."""

    OPEN = "open"
    """It has not."""
    ANSWERED = "answered"
    REFUSED = "refused"
    """With the time to try again."""
    LOST = "lost"
    """Its engine died after the first token had gone out."""


@dataclass(slots=True, eq=False)
class Job:
    """One request of a client; times in seconds of the simulation."""

    number: int
    arrival: float
    num_prompt_tokens: int
    num_output_tokens: int
    max_tokens: int
    """What the client asks for: nobody but the executor knows the true length."""
    guessed_prompt_tokens: int
    """What a gateway makes of the prompt's length."""
    fate: Fate = Fate.OPEN
    first_token_at: float | None = None
    ended_at: float | None = None
    num_received: int = 0
    num_refusals: int = 0
    """Engines that took it not, or not in time."""
    num_failovers: int = 0
    """Engines that died with it before the first token."""
    engine_type: str = ""
    refusal: str = ""

    @property
    def first_token_seconds(self) -> float:
        """How long the first token took; infinity if none came."""
        return inf if self.first_token_at is None else self.first_token_at - self.arrival

    @property
    def per_token_seconds(self) -> float:
        """Mean time between tokens; infinity if it was not answered whole."""
        if self.fate is not Fate.ANSWERED or self.first_token_at is None or self.ended_at is None:
            return inf
        return (self.ended_at - self.first_token_at) / max(self.num_received - 1, 1)

    def is_good(self, slo: ServiceLevel) -> bool:
        """Whether it was answered whole, and within both objectives."""
        return (
            self.fate is Fate.ANSWERED
            and self.first_token_seconds <= slo.first_token_seconds
            and self.per_token_seconds <= slo.per_token_seconds
        )
