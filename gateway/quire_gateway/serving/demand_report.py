"""What was asked of a service, as it is told to whoever sizes its fleet."""

import msgspec

PROMPT_BOUNDS = (128, 512, 2048, 8192, 32768)
"""Tokens: the largest of each bucket but the last."""
OUTPUT_BOUNDS = (32, 128, 512, 2048)


class DemandReport(msgspec.Struct, kw_only=True):
    """What was asked of one service."""

    seconds: float
    """Since counting began."""
    prompt_bounds: tuple[int, ...] = PROMPT_BOUNDS
    output_bounds: tuple[int, ...] = OUTPUT_BOUNDS
    arrivals: list[int]
    """Requests that keys allow, by the length of their prompts, as it is estimated."""
    num_retries: int
    """Requests besides, that clients' libraries sent again."""
    ended: list[list[int]]
    """Answered requests by the length of prompt and of output, as engines counted them."""
    prompt_tokens: int
    """Of these."""
    output_tokens: int
    cached_tokens: int
    """Of the prompts', those that were not computed."""
    refusals: dict[str, int]
    """By reason."""
    num_unserved: int = 0
    """Interactive requests that were refused for want of room, without what was sent again by
    libraries and without those whose own deadline was too early."""
    first_token: "Attainment"
    """Of interactive streams, if there is such a promise."""
    output_token: "Attainment"


class Attainment(msgspec.Struct, kw_only=True):
    """How a promise was kept."""

    met: int = 0
    missed: int = 0

    def count(self, seconds: float, promised_seconds: float) -> None:
        """Count a request."""
        if seconds <= promised_seconds:
            self.met += 1
        else:
            self.missed += 1
