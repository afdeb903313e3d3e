"""Generated traffic: lengths like those of a chat service, arrivals as bursty as wanted.

Everything is drawn from the `random.Random` that the caller brings: one seed, one trace.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quire_engine.errors import ConfigError
from quire_engine.profiles.traces import TraceRequest

if TYPE_CHECKING:
    from random import Random


@dataclass(frozen=True, slots=True)
class LogNormal:
    """One component of a mixture of lengths."""

    weight: float
    median: float
    """Tokens."""
    sigma: float
    """Standard deviation of the length's logarithm."""


@dataclass(frozen=True, kw_only=True)
class LengthMix:
    """How long prompts and outputs are; the two are independent."""

    prompts: tuple[LogNormal, ...]
    outputs: tuple[LogNormal, ...]
    max_prompt_tokens: int = 14_000
    max_output_tokens: int = 16_000


CHAT = LengthMix(
    prompts=(
        LogNormal(0.195, 229, 0.99),
        LogNormal(0.229, 398, 0.04),
        LogNormal(0.376, 1085, 0.09),
        LogNormal(0.124, 1989, 0.43),
        LogNormal(0.076, 4086, 0.03),
    ),
    outputs=(
        LogNormal(0.020, 15, 0.19),
        LogNormal(0.647, 96, 0.47),
        LogNormal(0.272, 404, 0.05),
        LogNormal(0.061, 513, 0.19),
    ),
    max_output_tokens=1000,
)
"""Fitted to the Azure LLM inference trace 2023, conversations (Patel et al., Splitwise, ISCA 2024):
means of 1,155 prompt and 211 output tokens."""

DOCUMENTS = LengthMix(
    prompts=(LogNormal(1.0, 5000, 0.4),), outputs=(LogNormal(1.0, 60, 0.5),), max_output_tokens=400
)
"""Long prompts and short answers: extraction, classification, summaries."""

_LONG_SIGMA = 0.8


def long_outputs(mean_tokens: float) -> LengthMix:
    """Chat prompts with log-normal outputs of this mean, such as reasoning models write."""
    if not math.isfinite(mean_tokens) or mean_tokens < 1:
        raise ConfigError(f"the mean output must be at least 1 token, not {mean_tokens}")
    median = mean_tokens / math.exp(_LONG_SIGMA**2 / 2)
    return LengthMix(
        prompts=CHAT.prompts,
        outputs=(LogNormal(1.0, median, _LONG_SIGMA),),
        max_output_tokens=round(16 * mean_tokens),
    )


def generate_trace(
    random: "Random",
    *,
    num_requests: int,
    requests_per_second: float,
    lengths: LengthMix = CHAT,
    burstiness: float = 1.0,
) -> list[TraceRequest]:
    """Draw a trace.

    Parameters
    ----------
    random
        Source of every draw.
    num_requests, requests_per_second
        How many, and their mean rate.
    burstiness
        Coefficient of variation of the time between arrivals: 0 is a metronome, 1 is Poisson,
        more comes in bursts with gaps between them.

    Raises
    ------
    ConfigError
        A figure is negative, NaN or otherwise impossible.
    """
    if num_requests < 1 or not (math.isfinite(requests_per_second) and requests_per_second > 0):
        raise ConfigError(
            "a generated trace needs at least 1 request and a rate above 0, not "
            f"{num_requests} requests at {requests_per_second}/s"
        )
    if not (math.isfinite(burstiness) and burstiness >= 0):
        raise ConfigError(f"burstiness must be 0 or more, not {burstiness}")
    now = 0.0
    requests = []
    for _ in range(num_requests):
        prompt = _draw_length(random, lengths.prompts, lengths.max_prompt_tokens)
        output = _draw_length(random, lengths.outputs, lengths.max_output_tokens)
        requests.append(TraceRequest(now, prompt, output))
        now += _draw_gap(random, burstiness) / requests_per_second
    return requests


def generate_varying_trace(
    random: "Random",
    *,
    seconds: float,
    rate: Callable[[float], float],
    most_per_second: float,
    lengths: Callable[[float], LengthMix],
) -> list[TraceRequest]:
    """Draw a trace whose rate and lengths change with time: Poisson arrivals, thinned.

    Parameters
    ----------
    rate
        Requests per second at a time, at most `most_per_second`.
    lengths
        How long requests are at a time.

    Raises
    ------
    ConfigError
        Nothing can arrive, or the figures are impossible.
    """
    if not (0 < seconds < math.inf and 0 < most_per_second < math.inf):
        raise ConfigError(
            "a generated trace needs a length and a rate above 0, not "
            f"{seconds} s at up to {most_per_second}/s"
        )
    now = 0.0
    requests: list[TraceRequest] = []
    while True:
        now += random.expovariate(most_per_second)
        if now >= seconds:
            break
        if random.random() * most_per_second < rate(now):
            mix = lengths(now)
            prompt = _draw_length(random, mix.prompts, mix.max_prompt_tokens)
            output = _draw_length(random, mix.outputs, mix.max_output_tokens)
            requests.append(TraceRequest(now, prompt, output))
    if not requests:
        raise ConfigError(f"no request arrives in {seconds:g} s: raise the rate or the time")
    return requests


def blend(first: LengthMix, second: LengthMix, share: float) -> LengthMix:
    """Of which this share is like the second mix; prompts and outputs stay independent."""
    return LengthMix(
        prompts=_blend(first.prompts, second.prompts, share),
        outputs=_blend(first.outputs, second.outputs, share),
        max_prompt_tokens=max(first.max_prompt_tokens, second.max_prompt_tokens),
        max_output_tokens=max(first.max_output_tokens, second.max_output_tokens),
    )


def _blend(
    first: tuple[LogNormal, ...], second: tuple[LogNormal, ...], share: float
) -> tuple[LogNormal, ...]:
    parts = [(part, 1.0 - share) for part in first] + [(part, share) for part in second]
    return tuple(LogNormal(part.weight * of, part.median, part.sigma) for part, of in parts)


def _draw_length(random: "Random", mixture: tuple[LogNormal, ...], most: int) -> int:
    (part,) = random.choices(mixture, [component.weight for component in mixture])
    length = random.lognormvariate(math.log(part.median), part.sigma)
    return min(max(round(length), 1), most)


def _draw_gap(random: "Random", burstiness: float) -> float:
    """Draw from a gamma distribution of mean 1 with this coefficient of variation."""
    if burstiness == 0:
        return 1.0
    shape = 1 / burstiness**2
    return random.gammavariate(shape, 1 / shape)
