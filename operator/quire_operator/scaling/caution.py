"""What is learnt from having taken away too much.

Bursts that are over before a replica has started would be chased: replicas ordered at each, and
given back as soon as they are ready. Promises that are broken meanwhile tell this from traffic that
merely goes up and down, and that it happens again tells it from a change: once it may be chance.
"""

from dataclasses import replace

from quire_operator.scaling.case import Case, Step
from quire_operator.scaling.decision import Caution

_MOST_WINDOWS = 8.0
"""So many stabilization windows at most nothing is taken away."""
_LEAST_WINDOWS = 0.5
"""Nothing was wrong: once makes 1, which is not held for, and twice 2."""
_FORGET = 6.0
"""After so many times as long it is tried whether half as long will do."""
_JUDGE_SECONDS = 300.0
"""For so long promises are counted at least, until they are judged."""
_ENOUGH_PROMISES = 50
_MANY = 1.5
"""Times the promises that may be missed: where hardly more are, holding costs and keeps no more."""


def learn(case: Case, step: Step, caution: Caution) -> Caution:
    """Look at what is done now: each time that it was wrong, twice as long comes after it."""
    now = case.now
    if step.action == "Down":
        return replace(caution, taken_at=now)
    caution = _judge(case, caution)
    window = max(caution.windows, 1.0) * case.service.down_seconds
    is_soon = caution.taken_at is not None and now - caution.taken_at < window
    is_broken = caution.has_broken or _are_broken(case, caution.kept)
    if step.action == "Up" and is_soon and is_broken:
        windows = min(2.0 * caution.windows, _MOST_WINDOWS)
        return replace(caution, windows=windows, changed_at=now, taken_at=None)
    if caution.windows > _LEAST_WINDOWS and now - caution.changed_at > _FORGET * window:
        return replace(caution, windows=max(caution.windows / 2.0, _LEAST_WINDOWS), changed_at=now)
    return caution


def _judge(case: Case, caution: Caution) -> Caution:
    seconds = case.now - caution.judged_at
    if seconds < _JUDGE_SECONDS or sum(caution.kept) < _ENOUGH_PROMISES:
        return caution
    has_broken = _are_broken(case, caution.kept)
    return replace(caution, kept=(0.0, 0.0), has_broken=has_broken, judged_at=case.now)


def _are_broken(case: Case, kept: tuple[float, float]) -> bool:
    """Whether many more promises were missed than may be."""
    return kept[1] > _MANY * (1.0 - case.service.slo.percentile / 100) * sum(kept)
