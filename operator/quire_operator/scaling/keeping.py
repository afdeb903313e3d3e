"""What memory keeps besides demand: its own beginning, kept promises, and traffic shares."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from quire_operator.scaling import failures, shortages
from quire_operator.scaling.case import Case
from quire_operator.scaling.decision import ServiceMemory
from quire_operator.scaling.inputs import ScalingInputs, ServiceInputs
from quire_operator.scaling.spreading import Carried

_LONGEST_GAP_SECONDS = 60.0
"""After so long without a decision, nobody knows what the peak was."""
_CORRECT_SECONDS = 60.0
_ENOUGH_PROMISES = 50
_STEP_UP = 1.08
_STEP_DOWN = 0.99
_MOST_CORRECTION = 1.6
_COMFORT = 0.5
"""Of the promises that may be missed: while so few are, the correction fades."""
_SHARE_CHANGE = 0.1
"""Shares that differ less are not told anew: whoever follows them begins counting again."""
_AS_LIGHT = 1.05
"""Times the load of the lightest way: as long as the way that was told is no heavier, it stays. Two
that are as light would take turns by the chance of which prompts come.
"""


def rejuvenate(
    memory: ServiceMemory | None,
    service: ServiceInputs,
    inputs: ScalingInputs,
    last_at: float | None,
) -> ServiceMemory:
    """Memory as it is now: a new one, or one whose times are not in the future."""
    now = inputs.now
    before = math.nextafter(now, -math.inf)  # nobody has asked just now: that was not counted
    if memory is None:
        short = {
            one.name: shortages.recorded(one.short_since, inputs)
            for one in service.accelerators
            if one.short_since is not None
        }
        return ServiceMemory(since=now, last_request_at=before, short=short, corrected_at=now)
    if last_at is None or now >= last_at:
        gap = 0.0 if last_at is None else now - last_at
        return replace(memory, since=now) if gap > _LONGEST_GAP_SECONDS else memory
    # the clock was set back: what lies in the future happened now
    back = last_at - now
    return replace(
        memory,
        since=min(memory.since, now),
        last_request_at=min(memory.last_request_at, before),
        samples=tuple(replace(one, at=one.at - back) for one in memory.samples),
        parts=tuple(replace(one, at=min(one.at, now)) for one in memory.parts),
        better_since=None if memory.better_since is None else min(memory.better_since, now),
        added_at=None if memory.added_at is None else min(memory.added_at, now),
        rising_since=None if memory.rising_since is None else min(memory.rising_since, now),
        pressed_since=None if memory.pressed_since is None else min(memory.pressed_since, now),
        short=shortages.set_back(memory.short, now),
        retried=shortages.set_back(memory.retried, now),
        failures=failures.set_back(memory.failures, now),
        unheard_since={name: min(since, now) for name, since in memory.unheard_since.items()},
        corrected_at=min(memory.corrected_at, now),
        caution=memory.caution.set_back(now),
    )


def correct(case: Case, memory: ServiceMemory) -> ServiceMemory:
    """Learn from kept promises how much less replicas do than was computed.

    Only while all that was asked for is there and not full: else it is known why they are missed.
    """
    if case.now - memory.corrected_at < _CORRECT_SECONDS:
        return memory
    met, missed = memory.kept
    fleet = case.fleet
    is_calm = (
        fleet.num_ready == fleet.num_ordered > 0
        and not case.service.leaving
        and not case.urgency.is_urgent
        and case.heard.is_all
        and met + missed >= _ENOUGH_PROMISES
    )
    correction = memory.correction
    if is_calm:
        allowed = 1.0 - case.service.slo.percentile / 100
        part = missed / (met + missed)
        if part > allowed:
            correction = min(correction * _STEP_UP, _MOST_CORRECTION)
        elif part < _COMFORT * allowed:
            correction = max(correction * _STEP_DOWN, 1.0)
    return replace(memory, correction=correction, kept=(0.0, 0.0), corrected_at=case.now)


def keep_shares(case: Case, memory: ServiceMemory) -> ServiceMemory:
    """Spread tokens over what is ready; small changes are not worth telling."""
    parts_of = partial(_parts_of_tokens, case)
    return replace(memory, shares=choose_shares(_ways(case), memory.shares, parts_of))


def choose_shares(
    ways: Sequence[Carried],
    told: Mapping[str, float],
    parts_of: Callable[[Carried], Mapping[str, float]],
) -> Mapping[str, float]:
    """Those that were told, if a way that is as light as any has about these; or the lightest's.

    Parameters
    ----------
    ways
        None where there is nothing to share.
    parts_of
        Parts of the tokens by accelerator.
    """
    if not ways:
        return {}
    lightest, *others = sorted(ways, key=lambda way: way.load)
    shares = parts_of(lightest)
    if _are_alike(shares, told):
        return told
    as_light = (one for one in others if one.load <= _AS_LIGHT * lightest.load)
    return told if any(_are_alike(parts_of(one), told) for one in as_light) else shares


def _are_alike(shares: Mapping[str, float], others: Mapping[str, float]) -> bool:
    return shares.keys() == others.keys() and all(
        abs(share - others[name]) < _SHARE_CHANGE for name, share in shares.items()
    )


def _ways(case: Case) -> list[Carried]:
    ready = {name: count for name, count in case.fleet.ready.items() if count}
    if len(ready) < 2 or case.service.leaving or case.demand is None or not case.offers.are_known:
        return []
    return case.sizing.spread_all_ways(ready, case.rates_now)


def _parts_of_tokens(case: Case, carried: Carried) -> Mapping[str, float]:
    tokens = {
        name: sum(
            part * rate * (bucket.prompt_tokens + bucket.output_tokens)
            for part, rate, bucket in zip(parts, case.rates_now, case.offers.mix, strict=True)
        )
        for name, parts in carried.shares.items()
    }
    total = sum(tokens.values())
    return {name: round(one / total, 2) for name, one in tokens.items()} if total > 0 else {}
