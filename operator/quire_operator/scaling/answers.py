"""How long prompts and answers are, from those that have ended: buckets of lengths.

Two memories fade, one in half the time of the other. The lasting one knows more answers, so that
chance moves it less: what a few long prompts ask for is not bought. Where the recent one differs
from it beyond what chance makes, lengths have changed, and the recent one is believed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from quire_operator.scaling.decision import Answers, ServiceMemory

RECENT_SECONDS = 150.0
"""In so long the recent memory halves."""
LASTING_SECONDS = 300.0
_SIGNIFICANT = 4.0
"""Standard deviations by which lengths must differ: of these one is not chance's."""
_STILL_SIGNIFICANT = 3.0
"""The same of prompts that come, once they did. Those that are always refused are missing among the
answers: with one bound they differed and did not by turns, and replicas came and went.
"""
_FADED = 2.0
"""Answers in a memory that fades that say as much as one that was counted whole."""
_TYPICAL_OUTPUT_TOKENS = 200.0
_PRIOR_ANSWERS = 2.0
_LEAN = 5.0
"""Answers of each prompt bucket that those of all buckets are worth."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Requests of about one length, and how many of them come."""

    prompt_tokens: float
    output_tokens: float
    prefill_tokens: float
    """Of the prompt, those that are not cached."""
    rate: float
    """Requests per second."""
    row: int = 0
    """Prompt bucket that it is of."""
    first_tokens: float | None = None
    """Of the prompt, those that are computed before the first token, as answers alone tell it;
    None: `prefill_tokens`."""


def remember_answers(
    known: Answers,
    elapsed: float,
    half_life: float,
    ended: Sequence[Sequence[float]],
    tokens: Sequence[float],
) -> Answers:
    """Add what has ended in so many seconds, and let older answers fade."""
    fade = 0.5 ** (max(elapsed, 0.0) / half_life)
    prompt, output, cached = (
        old * fade + new for old, new in zip(known.tokens, tokens, strict=True)
    )
    return Answers(ended=_fade(known.ended, fade, ended), tokens=(prompt, output, cached))


def buckets(
    memory: ServiceMemory, prompt_rates: Sequence[float], bounds: tuple[Sequence[int], ...]
) -> tuple[Bucket, ...]:
    """Spread rates by prompt over lengths of outputs; those that nobody asks for are left out.

    See `note_lengths`, which comes first.

    Parameters
    ----------
    bounds
        Of prompts and of outputs, as gateways have them.
    """
    prompts = typical_lengths(bounds[0])
    outputs = typical_lengths(bounds[1])
    known = _known(memory, prompts, outputs)
    columns = [sum(row[at] for row in known.ended if at < len(row)) for at in range(len(outputs))]
    prior = [math.exp(-(math.log(one / _TYPICAL_OUTPUT_TOKENS) ** 2) / 2) for one in outputs]
    columns = _plus(columns, prior, _PRIOR_ANSWERS)
    found: list[tuple[float, float, float, int]] = []
    for row, rate in enumerate(prompt_rates):
        if rate <= 0 or row >= len(prompts):
            continue
        answers = known.ended[row] if row < len(known.ended) else ()
        weights = _plus([*answers, *[0.0] * (len(outputs) - len(answers))], columns, _LEAN)
        total = sum(weights)
        for column, weight in enumerate(weights[: len(outputs)]):
            found.append((prompts[row], outputs[column], rate * weight / total, row))
    return _fit(found, known, bounds, are_others=memory.are_others)


def note_lengths(memory: ServiceMemory, bounds: tuple[Sequence[int], ...]) -> ServiceMemory:
    """Remember whether what comes differs from what was answered: until it hardly does any more."""
    prompts, outputs = map(typical_lengths, bounds)
    known = _known(memory, prompts, outputs)
    return replace(memory, are_others=_arrive_otherwise(memory, known, prompts))


def _known(memory: ServiceMemory, prompts: Sequence[float], outputs: Sequence[float]) -> Answers:
    """What was answered, as far as it says what comes."""
    return memory.recent if _have_changed(memory, prompts, outputs) else memory.lasting


def _have_changed(
    memory: ServiceMemory, prompts: Sequence[float], outputs: Sequence[float]
) -> bool:
    """Whether recent prompts or outputs are longer or shorter than chance makes them."""
    recent, lasting = memory.recent.ended, memory.lasting.ended
    by_output = [*zip(*recent, strict=False)], [*zip(*lasting, strict=False)]
    return _differ(recent, lasting, prompts) or _differ(*by_output, outputs)


def _arrive_otherwise(memory: ServiceMemory, known: Answers, prompts: Sequence[float]) -> bool:
    """Whether prompts that come are longer or shorter than those of the answers, beyond chance.

    Answers come later, and none to requests that were refused.
    """
    arrived: list[float] = []
    for one in memory.samples:
        add(arrived, one.arrivals)
    answered = [*map(sum, known.ended)]
    num, num_arrived = sum(answered), sum(arrived)
    if num < _FADED or num_arrived < 1:
        return False
    mean = _mean(answered, prompts)
    variance = _mean(answered, [(one - mean) ** 2 for one in prompts])
    deviation = math.sqrt(variance * (_FADED / num + 1.0 / num_arrived))
    bound = _STILL_SIGNIFICANT if memory.are_others else _SIGNIFICANT
    return abs(_mean(arrived, prompts) - mean) > bound * deviation


def _differ(
    recent: Sequence[Sequence[float]], lasting: Sequence[Sequence[float]], lengths: Sequence[float]
) -> bool:
    """Compare mean lengths; counts are by length, and then by anything."""
    counts, longer = [*map(sum, recent)], [*map(sum, lasting)]
    num = sum(counts)
    if num < _FADED:
        return False
    mean = _mean(longer, lengths)
    variance = _mean(longer, [(one - mean) ** 2 for one in lengths])
    return abs(_mean(counts, lengths) - mean) > _SIGNIFICANT * math.sqrt(_FADED * variance / num)


def _mean(counts: Sequence[float], of: Sequence[float]) -> float:
    return sum(count * one for count, one in zip(counts, of, strict=False)) / sum(counts)


def _means_of(known: Answers, bounds: tuple[Sequence[int], ...]) -> list[float]:
    """Typical prompt and output of the answers."""
    by_prompt = [sum(row) for row in known.ended]
    by_output = [sum(column) for column in zip(*known.ended, strict=False)]
    prompts, outputs = map(typical_lengths, bounds)
    return [_mean(by_prompt, prompts), _mean(by_output, outputs)]


def _fit(
    found: Sequence[tuple[float, float, float, int]],
    known: Answers,
    bounds: tuple[Sequence[int], ...],
    *,
    are_others: bool,
) -> tuple[Bucket, ...]:
    """Move typical lengths so that their means are the measured ones.

    Whether a prompt is computed in time is asked of lengths that are fitted to the answers alone,
    which chance hardly moves: else which prompts happen to come moves all of them over the edge of
    an accelerator and back.

    Parameters
    ----------
    are_others
        Whether what comes is longer or shorter than what was answered: then the answers' typical
        lengths are moved to the answers' means, and what comes differs as its buckets say.
    """
    answers = sum(map(sum, known.ended))
    rate = sum(one[2] for one in found)
    if rate <= 0:
        return ()
    prompt_factor = output_factor = own_factor = 1.0
    uncached = 1.0
    if answers >= 1 and known.tokens[0] > 0 and known.tokens[1] > 0:
        means = own_means = _means_of(known, bounds)
        if not are_others:
            means = [sum(one[axis] * one[2] for one in found) / rate for axis in (0, 1)]
        own_factor = known.tokens[0] / answers / own_means[0]
        prompt_factor = known.tokens[0] / answers / means[0]
        output_factor = known.tokens[1] / answers / means[1]
        uncached = min(max(1.0 - known.tokens[2] / known.tokens[0], 0.02), 1.0)
    made = []
    for prompt, output, one_rate, row in found:
        prompt_tokens = _within(prompt, prompt_factor, bounds[0])
        made.append(
            Bucket(
                prompt_tokens=prompt_tokens,
                output_tokens=_within(output, output_factor, bounds[1]),
                prefill_tokens=max(prompt_tokens * uncached, 1.0),
                rate=one_rate,
                row=row,
                first_tokens=max(_within(prompt, own_factor, bounds[0]) * uncached, 1.0),
            )
        )
    return tuple(made)


def typical_lengths(bounds: Sequence[int]) -> list[float]:
    """The geometric middle of each bucket; the first begins at a quarter, the last has no end."""
    edges = [max(bounds[0] / 4, 1.0), *map(float, bounds), bounds[-1] * 2.0]
    return [math.sqrt(low * high) for low, high in pairwise(edges)]


def _within(typical: float, factor: float, bounds: Sequence[int]) -> float:
    """A bucket's typical length times a factor, in the bucket still."""
    low, high = 1.0, bounds[-1] * 4.0
    for bound in bounds:
        if typical <= bound:
            high = float(bound)
            break
        low = float(bound)
    return min(max(typical * factor, low), high)


def add(counts: list[float], more: Sequence[float]) -> None:
    """Add in place; the first grows as long as the other."""
    counts += [0.0] * (len(more) - len(counts))
    for index, one in enumerate(more):
        counts[index] += one


def _plus(first: Sequence[float], second: Sequence[float], weight: float) -> list[float]:
    """The first, and the second as if it were `weight` in sum."""
    total = sum(second) or 1.0
    return [one + weight * other / total for one, other in zip(first, second, strict=False)]


def _fade(
    old: Sequence[Sequence[float]], fade: float, new: Sequence[Sequence[float]]
) -> tuple[tuple[float, ...], ...]:
    rows = [[one * fade for one in row] for row in old]
    while len(rows) < len(new):
        rows.append([])
    for row, more in zip(rows, new, strict=False):
        add(row, more)
    return tuple(map(tuple, rows))
