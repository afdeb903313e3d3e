"""How much of some traffic one replica serves within its promises.

An engine with N requests that decode, in a steady state, finishes N / output tokens of them in each
step, and computes as many prompts beside. So one number, N, says how long a step takes, how many
blocks are held, and how many requests come through. The largest N is looked for at which

    time      steps, with the prompts in them, keep the promise per token;
              a prompt and those ahead of it keep the promise of the first token
    blocks    N x blocks of a request  <=  target x admission x blocks
    seats     N  <=  target x seats

Of time, `target` times the requests per second at that edge are planned: near it every one more
costs all others. For a mix that is not this one, each bucket's part of what runs out is kept.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from quire_operator.scaling.answers import Bucket
from quire_operator.scaling.engines import Engine, engine_of
from quire_operator.scaling.inputs import Capability, ServiceLevel
from quire_operator.scaling.lengths import Array, Lengths, Mean, lengths_of
from quire_operator.scaling.loads import Loads
from quire_operator.scaling.newest import Newest
from quire_operator.scaling.steady import Steady

_QUICK_SHARE = 0.45
"""Of the promised time of the first token, for prompts that are quick: half of what is allowed.
Others' waits grow by the square of a prompt, so a replica that is spared the longest does much more
of the others.
"""
_MOST_KEPT = 32


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What one replica does of a mix of buckets."""

    requests_per_second: float
    """Of the buckets that it can serve, at the target."""
    tokens_per_second: float
    """Generated ones."""
    binding: str
    """What runs out first: blocks, seats, step or first_token."""
    concurrency: float
    """Requests that run at the target."""
    loads: Loads
    """Infinity where it cannot keep the promises of such requests."""
    prompt_tokens_per_second: float
    """At the target, while prompts are computed."""
    find_quick: Callable[[], Loads] | None = None
    """How `quick_loads` are computed; None: they are `loads`."""

    @cached_property
    def quick_loads(self) -> Loads:
        """The same of a replica that gets prompts only that are quick on it; of others infinity.

        They take as long to compute as all of the rest, and most are not asked for.
        """
        return self.find_quick() if self.find_quick else self.loads


@dataclass(frozen=True, kw_only=True)
class Incapable:
    """Why a replica can serve nobody."""

    reason: str
    alone_seconds: float
    """Seconds per token of one request alone."""


def capacity(
    capability: Capability,
    expected: Capability | None,
    mix: Sequence[Bucket],
    slo: ServiceLevel,
    target: float,
    admission: float = 1.0,
) -> Capacity | Incapable:
    """Compute what one replica does of a mix.

    Parameters
    ----------
    capability
        Of this accelerator, measured if it was.
    expected
        What takes its place beyond the range of what was measured; None: the range is the limit.
    mix
        Not empty; only the rates' proportions matter.
    target
        Share of what there is that is planned, in (0, 1].
    admission
        Share of the blocks that there are for requests: more are not admitted, in (0, 1].
    """
    mix = tuple(mix)
    return _newest.find(
        (capability, expected, mix),
        (slo, target, admission),
        lambda: _capacity(engine_of(capability, expected, slo), mix, target, admission),
    )


_newest: Newest[Capacity | Incapable] = Newest(_MOST_KEPT)
"""The same GPU may be an accelerator twice, at two prices."""


def _capacity(
    engine: Engine, mix: tuple[Bucket, ...], target: float, admission: float
) -> Capacity | Incapable:
    slo = engine.slo
    if engine.alone_seconds > (slo.per_token_seconds or math.inf):
        return Incapable(
            reason=f"one request alone takes {milliseconds(engine.alone_seconds)} a token, and"
            f" the SLO asks for {milliseconds(slo.per_token_seconds or math.inf)}",
            alone_seconds=engine.alone_seconds,
        )
    lengths = lengths_of(mix, engine.capability.block_size)
    served = engine.serves(lengths)
    if not served.any():
        return Incapable(
            reason="no prompt of this traffic is computed within"
            f" {slo.first_token_seconds or 0:g} s, or fits",
            alone_seconds=engine.alone_seconds,
        )
    work = _Work(engine, lengths, target, admission)
    whole = work.of(served)
    quick = engine.serves(lengths, _QUICK_SHARE)
    if (quick == served).all():
        return whole
    return replace(whole, find_quick=partial(work.loads, quick))


def milliseconds(seconds: float) -> str:
    """In words: whole ones, unless they are few."""
    number = 1e3 * seconds
    return f"{number:.0f} ms" if number >= 10 else f"{number:.3g} ms"


@dataclass(frozen=True, slots=True)
class _Work:
    """An engine, what it is asked for, and how much of it is planned."""

    engine: Engine
    lengths: Lengths
    target: float
    admission: float

    def loads(self, served: Array) -> Loads:
        """Of these buckets, where no others come."""
        return self.of(served).loads if served.any() else Loads.none(len(served))

    def of(self, served: Array) -> Capacity:
        """Find how many requests may run at a time, and what that does; some are served."""
        mean, target = self.lengths.mean(served), self.target
        steady = Steady(self.engine, mean)
        edge, why = steady.edge(self.admission)
        edge_rate = steady.rate(edge)
        at_target = steady.running_at(target * edge_rate, edge) if why else math.inf
        by_blocks = target * steady.in_blocks(self.admission)
        by_seats = min(target * self.engine.capability.max_num_seqs, steady.most_known)
        memory = min(by_blocks, by_seats)
        running = min(at_target, memory)
        binding = why if running == at_target else "blocks" if memory == by_blocks else "seats"
        seconds = steady.seconds(running)
        rate = running / (mean.output * seconds)
        loads = self._loads(
            mean,
            served,
            memory_rate=memory / (mean.output * seconds),
            time_rate=target * edge_rate if why else math.inf,
            is_by_blocks=memory == by_blocks,
        )
        return Capacity(
            requests_per_second=rate,
            tokens_per_second=rate * mean.output,
            binding=binding,
            concurrency=running,
            loads=loads,
            prompt_tokens_per_second=steady.prompt_rate(running),
        )

    def _loads(
        self,
        mean: Mean,
        served: Array,
        *,
        memory_rate: float,
        time_rate: float,
        is_by_blocks: bool,
    ) -> Loads:
        """Each bucket's part of memory and of time, by what it takes beside the mean request."""
        costs, lengths = self.engine.costs, self.lengths
        mean_time = (
            mean.output * costs.output
            + mean.context_steps * costs.context
            + mean.prefill * costs.prompt
            + mean.pairs * costs.pair
        )
        mean_memory = mean.block_steps if is_by_blocks else mean.output
        times = (
            lengths.outputs * costs.output
            + lengths.context_steps * costs.context
            + lengths.prefills * costs.prompt
            + lengths.pairs * costs.pair
        ) / (mean_time * time_rate)
        held = lengths.block_steps if is_by_blocks else lengths.outputs
        memories = held / (mean_memory * memory_rate)
        return Loads(np.where(served, memories, math.inf), np.where(served, times, math.inf))
