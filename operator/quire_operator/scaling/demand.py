"""How much is asked: from gateways' counts to requests per second in buckets of lengths.

Arrivals are counted by length of prompt at once; how long answers are is known when they have
ended (`answers`). The rate is that of five minutes, unless a shorter window says, beyond what
chance makes of it, that it has changed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from quire_operator.scaling.answers import (
    LASTING_SECONDS,
    RECENT_SECONDS,
    add,
    remember_answers,
    typical_lengths,
)
from quire_operator.scaling.decision import Part, Sample, ServiceMemory
from quire_operator.scaling.inputs import GatewayFigures, ServiceInputs

WINDOWS = (30.0, 60.0, 120.0)
"""Seconds of the shorter windows, the shortest first."""
LONGEST_WINDOW = 300.0
LEAST_SECONDS = 10.0
"""Counts of less say nothing."""
SIGNIFICANT = 4.0
"""Standard deviations by which a window must differ to be believed; of these one is not."""
MOST_DISPERSION = 4.0
_ALIKE = 6
"""Samples within which the rate is taken to be the same."""
_LEAST_FREEDOM = 5
"""Samples less their means: of fewer, dispersion is not taken."""
_DOUBT = 2.0
"""Standard deviations that are not believed of what was watched for a moment only."""
_SURE = 4.0
"""Standard deviations that are not believed where nothing was watched, to add replicas at once."""
_UNLIKE = 2.0
"""Variance of requests' work that comes of their lengths, over that of their number."""
_PARTS = 5
"""Of the stabilization window."""
_PASSING = 0.8
"""Of the busiest part: above the target there is room for what comes and goes."""
_BARELY = 1e-6
"""Seconds: where a part ends, the next has not begun."""
_OUTPUT_WORTH = 1000.0
"""Tokens of a prompt that take about as long as a typical output."""
_MOST_GATEWAYS = 200


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What is asked now."""

    prompt_rates: tuple[float, ...]
    """Requests per second by prompt bucket."""
    rate: float
    dispersion: float
    """Variance of counts over their mean: 1 where requests come by chance, more in bursts."""
    window_seconds: float
    """Over which the rate was taken."""
    certain: float = 1.0
    """Part of the rate that is not there by chance, as long as little was counted."""
    sure: float = 1.0
    """Part of the load that surely is: lengths of few answers are chance, too."""


def remember(
    service: ServiceInputs, gateways: Sequence[GatewayFigures], memory: ServiceMemory, now: float
) -> ServiceMemory:
    """Add what gateways counted since the last time.

    A gateway that counts anew from zero is another one. One that was there before this memory
    began is not asked what came before.
    """
    elapsed = now - max((one.at for one in memory.samples), default=memory.since)
    arrivals: list[float] = []
    ended: list[list[float]] = []
    tokens = [0.0, 0.0, 0.0]
    kept, unserved = [0.0, 0.0], 0.0
    for gateway in gateways:
        before = _before(gateway, memory, elapsed)
        if before is None:
            continue
        # a gateway that was not heard for a while has counted for longer than this interval
        share = min(elapsed / max(gateway.seconds - before.seconds, elapsed, 1e-9), 1.0)
        share *= max(service.num_gateways / len(gateways), 1.0)
        new = _difference(gateway.arrivals, before.arrivals)
        add(arrivals, [share * one for one in new])
        for row, pair in enumerate(zip(gateway.ended, before.ended, strict=False)):
            while len(ended) <= row:
                ended.append([])
            add(ended[row], _difference(*pair))
        for index, name in enumerate(("prompt_tokens", "output_tokens", "cached_tokens")):
            tokens[index] += max(getattr(gateway, name) - getattr(before, name), 0)
        for index, kind in enumerate(("met", "missed")):
            for promise in ("first_token", "per_token"):
                name = f"num_{promise}_{kind}"
                kept[index] += max(getattr(gateway, name) - getattr(before, name), 0)
        unserved += max(gateway.num_unserved - before.num_unserved, 0)
    is_asked = any(arrivals) or any(one.num_waiting for one in gateways)
    samples = memory.samples
    if elapsed > 0 and arrivals:
        newest = Sample(at=now, seconds=elapsed, arrivals=tuple(arrivals))
        samples = (*(one for one in samples if one.at > now - LONGEST_WINDOW), newest)
    return replace(
        memory,
        counts=_newest({**memory.counts, **{one.gateway: one for one in gateways}}),
        samples=samples,
        recent=remember_answers(memory.recent, elapsed, RECENT_SECONDS, ended, tokens),
        lasting=remember_answers(memory.lasting, elapsed, LASTING_SECONDS, ended, tokens),
        kept=(memory.kept[0] + kept[0], memory.kept[1] + kept[1]),
        caution=replace(
            memory.caution,
            kept=(
                memory.caution.kept[0] + kept[0],
                memory.caution.kept[1] + kept[1] + _num_promises(service) * unserved,
            ),
        ),
        last_request_at=now if is_asked or _are_running(service) else memory.last_request_at,
    )


def estimate(memory: ServiceMemory, now: float) -> Demand | None:
    """Estimate the rates now; None while too little has been counted."""
    samples = [one for one in memory.samples if one.at > now - LONGEST_WINDOW]
    seconds = sum(one.seconds for one in samples)
    if seconds < LEAST_SECONDS:
        return None
    counts = _sum(samples)
    total = sum(counts)
    dispersion, window = _dispersion(samples), seconds
    # what was watched for a short time may have been more than usual by chance
    newness = max(1.0 - seconds / (LONGEST_WINDOW - WINDOWS[0]), 0.0)
    doubt = min(_DOUBT * newness * math.sqrt(total * dispersion), total / 2)
    rate = total / seconds
    for shorter in WINDOWS:
        latest = [one for one in samples if one.at > now - shorter]
        length = sum(one.seconds for one in latest)
        if length < LEAST_SECONDS or length >= seconds:
            continue
        expected, seen = rate * length, sum(map(sum, (one.arrivals for one in latest)))
        deviation = math.sqrt(max(expected * dispersion, 1.0))
        if seen - expected > SIGNIFICANT * deviation:
            rate, window = (seen - deviation) / length, length
            break
        if expected - seen > SIGNIFICANT * deviation:
            # what is doubted is what was seen: where nothing came, there was nothing to miss
            missed = min(deviation, math.sqrt(max(seen, 1.0) * dispersion))
            rate, window = (seen + missed) / length, length
            break
    parts = [one / total if total else 0.0 for one in counts]
    return Demand(
        prompt_rates=tuple(rate * part for part in parts),
        rate=rate,
        dispersion=dispersion,
        window_seconds=window,
        certain=1.0 - doubt / total if total > 0 else 1.0,
        sure=_sure(samples, dispersion, sum(map(sum, memory.lasting.ended))),
    )


def _sure(samples: Sequence[Sample], dispersion: float, num_answers: float) -> float:
    """Part of the load that what was counted shows, so that chance adds no replicas.

    The load of T seconds scatters by sqrt(300 / T) times what that of five minutes does, so
    replicas that outlast the one do not outlast the other. Requests may come in bursts as long as
    nobody has seen enough of them.
    """
    seconds, num = sum(one.seconds for one in samples), sum(sum(one.arrivals) for one in samples)
    newness = max(1.0 - math.sqrt(seconds / (LONGEST_WINDOW - WINDOWS[0])), 0.0)
    if not newness or not num:
        return 1.0
    if len(samples) < 2 * _ALIKE:
        dispersion = MOST_DISPERSION
    variance = dispersion / num + (_UNLIKE / num_answers if num_answers else math.inf)
    return max(1.0 - _SURE * newness * math.sqrt(variance), 0.0)


def note_part(
    memory: ServiceMemory, demand: Demand, times: float, down_seconds: float, now: float
) -> ServiceMemory:
    """Add what came since the last time to the stabilization window.

    Parameters
    ----------
    times
        By how much more replicas are taken than by what is asked.
    """
    latest = [one for one in memory.samples if one.at == now]
    if not latest:
        return memory
    newest = latest[-1]
    more = (times - 1.0) * newest.seconds
    arrivals = [*newest.arrivals]
    add(arrivals, [more * rate for rate in demand.prompt_rates])
    kept = [one for one in memory.parts if one.at > now - down_seconds]
    part = down_seconds / _PARTS
    if kept and _part(kept[-1].at - _BARELY, part) == _part(now - _BARELY, part):
        add(arrivals, kept[-1].arrivals)
        kept[-1] = Part(at=now, seconds=kept[-1].seconds + newest.seconds, arrivals=tuple(arrivals))
    else:
        kept.append(Part(at=now, seconds=newest.seconds, arrivals=tuple(arrivals)))
    return replace(memory, parts=tuple(kept))


def sustained(
    memory: ServiceMemory, demand: Demand, prompt_bounds: Sequence[int]
) -> tuple[float, ...]:
    """Rates by prompt bucket that what is left must carry: the window's, or those of now.

    The window's are its mean, or more if its busiest part was far above that, or its later half
    above it.
    """
    seconds = sum(one.seconds for one in memory.parts)
    if seconds <= 0:
        return demand.prompt_rates
    counts: list[float] = []
    for one in memory.parts:
        add(counts, one.arrivals)
    mean = [one / seconds for one in counts]
    load = _work(mean, prompt_bounds)
    whole = max(one.seconds for one in memory.parts)
    busiest = max(
        _work(one.arrivals, prompt_bounds) / one.seconds
        for one in memory.parts
        if one.seconds > 0.5 * whole
    )
    later = _later(memory, demand.dispersion, prompt_bounds)
    times = max(_PASSING * busiest / load, later / load, 1.0) if load > 0 else 1.0
    if _work(demand.prompt_rates, prompt_bounds) > times * load:
        return demand.prompt_rates
    return tuple(times * one for one in mean)


def _later(memory: ServiceMemory, dispersion: float, prompt_bounds: Sequence[int]) -> float:
    """Work of the window's later half, less a deviation of what was counted.

    Where the rate has risen, the mean of the window is of what will not come again.
    """
    half = memory.parts[len(memory.parts) // 2 :]
    num = sum(sum(one.arrivals) for one in half)
    if num <= 0:
        return 0.0
    work = sum(_work(one.arrivals, prompt_bounds) for one in half)
    certain = max(1.0 - math.sqrt(dispersion / num), 0.0)
    return certain * work / sum(one.seconds for one in half)


def _work(prompt_rates: Sequence[float], prompt_bounds: Sequence[int]) -> float:
    """Tokens that are asked for a second, about: fewer but longer prompts may be the peak."""
    lengths = typical_lengths(prompt_bounds)
    return sum(
        rate * (length + _OUTPUT_WORTH) for rate, length in zip(prompt_rates, lengths, strict=False)
    )


def _before(
    gateway: GatewayFigures, memory: ServiceMemory, elapsed: float
) -> GatewayFigures | None:
    before = memory.counts.get(gateway.gateway)
    if before is not None and before.seconds <= gateway.seconds:
        is_alike = len(before.arrivals) == len(gateway.arrivals)
        return before if is_alike else None
    if before is None and (not memory.counts or gateway.seconds > 2 * elapsed + LEAST_SECONDS):
        return None
    return replace(
        gateway,
        arrivals=(0,) * len(gateway.arrivals),
        ended=tuple((0,) * len(row) for row in gateway.ended),
        prompt_tokens=0,
        output_tokens=0,
        cached_tokens=0,
        num_unserved=0,
        num_first_token_met=0,
        num_first_token_missed=0,
        num_per_token_met=0,
        num_per_token_missed=0,
    )


def _num_promises(service: ServiceInputs) -> int:
    """So many are broken by a refusal."""
    slo = service.slo
    return sum(one is not None for one in (slo.first_token_seconds, slo.per_token_seconds))


def _newest(counts: dict[str, GatewayFigures]) -> dict[str, GatewayFigures]:
    """Those that were heard last: names of gateways that are gone are not kept for ever."""
    return dict(list(counts.items())[-_MOST_GATEWAYS:])


def _are_running(service: ServiceInputs) -> bool:
    return any(
        one.engine is not None and (one.engine.num_running or one.engine.num_waiting)
        for one in service.replicas
        if not one.is_ending
    )


def _dispersion(samples: Sequence[Sample]) -> float:
    """Variance of the samples' counts over their mean, as far as chance does not explain it.

    That the rate has changed is no dispersion: each few samples have a mean of their own, and those
    that differ most, in which the change was, are left out.
    """
    groups = [_scatter(samples[at : at + _ALIKE]) for at in range(0, len(samples), _ALIKE)]
    groups.sort(key=lambda one: one[0] - one[1])
    squares, usual, num = (sum(one[at] for one in groups[:-1]) for at in range(3))
    if usual <= 0 or num < _LEAST_FREEDOM:
        return 1.0
    doubt = 2.0 * math.sqrt(2.0 / num)
    return min(max(squares / usual - doubt, 1.0), MOST_DISPERSION)


def _scatter(samples: Sequence[Sample]) -> tuple[float, float, int]:
    """Squares of what counts differ from their mean, those that chance makes, and how many."""
    rate = sum(sum(one.arrivals) for one in samples) / sum(one.seconds for one in samples)
    squares = sum((sum(one.arrivals) - rate * one.seconds) ** 2 for one in samples)
    num = len(samples) - 1
    return squares, rate * sum(one.seconds for one in samples) * num / len(samples), num


def _part(at: float, seconds: float) -> int:
    return math.floor(at / seconds) if seconds > 0 else 0


def _sum(samples: Sequence[Sample]) -> list[float]:
    counts: list[float] = []
    for one in samples:
        add(counts, one.arrivals)
    return counts


def _difference(now: Sequence[float], before: Sequence[float]) -> list[float]:
    return [max(one - other, 0.0) for one, other in zip(now, before, strict=False)]
