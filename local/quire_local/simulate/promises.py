"""Promises that no GPU keeps for any request of some traffic.

One rule, whichever promise it is: where an answer cannot be given, there is an error, as where no
request alone gets its tokens as fast (`types_of`). What can be served, too late or not for all, is
planned and simulated, and its figures say how much of the promises is kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from quire_engine.errors import ConfigError
from quire_engine.profiles.step_time import count_pairs
from quire_local.simulate.hardware import (
    MAX_NUM_BATCHED_TOKENS,
    EngineType,
    Limits,
    ServiceLevel,
)
from quire_local.simulate.sizing import measure_capacity, split_by_length
from quire_local.simulate.workload import Workload
from quire_operator.scaling.answers import Bucket
from quire_operator.scaling.capacity import Capacity, milliseconds

_SLOWEST_SECONDS = 3600.0
_NEAR = 1.05


def check_promises(
    workload: Workload, types: Sequence[EngineType], slo: ServiceLevel, limits: Limits
) -> None:
    """Refuse promises that no type keeps for any of the requests.

    Raises
    ------
    ConfigError
        None does; the message names the best that there is, if promises are all that is wrong.
    """
    traffic = _Traffic(
        buckets=split_by_length(workload.trace, max(workload.seconds, 1.0)),
        shortest_prompt=min(one.num_prompt_tokens for one in workload.trace),
        limits=limits,
    )
    reasons = {one.name: traffic.why_not(one, slo) for one in types}
    if all(reasons.values()):
        told = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        best = _find_first_token(traffic, types, slo)
        raise ConfigError(f"no GPU serves any of these requests as promised: {told}{best}")


@dataclass(frozen=True, kw_only=True)
class _Traffic:
    """What is asked of a GPU."""

    buckets: Sequence[Bucket]
    shortest_prompt: int
    limits: Limits

    def why_not(self, kind: EngineType, slo: ServiceLevel) -> str:
        """Why this type serves nothing of it as promised; empty where it serves something."""
        chunk = min(self.shortest_prompt, MAX_NUM_BATCHED_TOKENS)
        alone = kind.step_time.predict(0, 0, chunk, count_pairs(0, chunk))
        if alone > slo.first_token_seconds:
            return (
                f"the shortest prompt alone takes {milliseconds(alone)} to its first token, and the"
                f" SLO asks for {milliseconds(slo.first_token_seconds)}"
            )
        found = measure_capacity(kind, self.buckets, slo, self.limits)
        return "" if isinstance(found, Capacity) else found.reason


def _find_first_token(traffic: _Traffic, types: Sequence[EngineType], slo: ServiceLevel) -> str:
    """The soonest first token that there is, in words; empty where nothing fits, however late."""

    def serves(kind: EngineType, seconds: float) -> bool:
        return not traffic.why_not(kind, replace(slo, first_token_seconds=seconds))

    soonest, name = _SLOWEST_SECONDS, ""
    for kind in types:
        if not serves(kind, soonest):
            continue
        low, high = slo.first_token_seconds, soonest
        while high > _NEAR * low:
            middle = (low * high) ** 0.5
            low, high = (low, middle) if serves(kind, middle) else (middle, high)
        soonest, name = high, kind.name
    if not name:
        return ""
    # rounded up: what is named here can be promised
    best = f"the best there is takes {ceil(1e3 * soonest)} ms to a first token ({name})"
    return f"; {best}: raise --slo-time-to-first-token"
