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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from quire_operator.scaling.answers import Bucket
from quire_operator.scaling.inputs import Capability, ServiceLevel
from quire_operator.scaling.lengths import Array, Lengths, lengths_of
from quire_operator.scaling.loads import Loads
from quire_operator.scaling.step_times import StepTimes

_GROWTH = 1.1
"""Blocks that admission reserves for what runs, of those it holds on average."""
_CHUNK_TOKENS = 512
"""At this size the time of a prompt's token is looked at first."""
_CHUNK_STEP = 0.05
"""Of the size: so near the one that fits is looked for. Time by token hardly changes within it."""
_LEAST_CHUNK = 16
"""So many tokens a prompt gets of every step, as the scheduler has it."""
_TAIL = 3.0
"""95th percentile of a wait over its mean, if waits are exponential."""
_FIRST_TOKEN_SHARE = 0.9
"""Of the promised time: the rest is for the network and the tokenizer."""
_QUICK_SHARE = 0.45
"""The same for prompts that are quick: half of that. Others' waits grow by the square of a prompt,
so a replica that is spared the longest does much more of the others.
"""
_EDGE_STEP = 0.01
"""Of the concurrency: so near its edge is looked for."""
_HALVINGS = 12
"""Of the concurrency's range, when the one of a rate is looked for: to 0.02 %."""
_MOST_SECONDS = 10.0
"""Of a step, where nothing is promised."""
_LEAST_CONCURRENCY = 1e-3
_LEAST_BUSY = 0.25
"""Of its time a replica may be busy with prompts, however long they are. One alone would have to be
idle nearly always for prompts that take most of what is promised; but several share the wait.
"""


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
    quick_loads: Loads
    """The same of a replica that gets prompts only that are quick on it; of others infinity."""
    prompt_tokens_per_second: float
    """At the target, while prompts are computed."""


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
    steps = StepTimes.of(capability, expected)
    per_token = slo.per_token_seconds or math.inf
    alone = steps.seconds(1, 1)
    if alone > per_token:
        return Incapable(
            reason=f"one request alone takes {milliseconds(alone)} a token, and"
            f" the SLO asks for {milliseconds(per_token)}",
            alone_seconds=alone,
        )
    engine = _Engine(capability, steps, slo, target, admission)
    lengths = lengths_of(tuple(mix), capability.block_size)
    served = engine.serves(lengths)
    if not served.any():
        return Incapable(
            reason="no prompt of this traffic is computed within"
            f" {slo.first_token_seconds or 0:g} s, or fits",
            alone_seconds=alone,
        )
    whole = engine.work_on(_Mean.of(lengths, served), lengths, served)
    quick = engine.serves(lengths, _QUICK_SHARE)
    if (quick == served).all():
        return whole
    loads = Loads.none(len(mix))
    if quick.any():
        loads = engine.work_on(_Mean.of(lengths, quick), lengths, quick).loads
    return replace(whole, quick_loads=loads)


def milliseconds(seconds: float) -> str:
    """In words: whole ones, unless they are few."""
    number = 1e3 * seconds
    return f"{number:.0f} ms" if number >= 10 else f"{number:.3g} ms"


@dataclass(frozen=True, slots=True)
class _Mean:
    """The mean request of a mix."""

    output: float
    """Tokens."""
    prefill: float
    pairs: float
    block_steps: float
    """Blocks that it holds, summed over the steps that it decodes in."""
    context_steps: float
    square: float
    """Of prompt tokens."""

    @classmethod
    def of(cls, lengths: Lengths, served: Array) -> "_Mean":
        """Over those that are served; there are some."""
        rates = np.where(served, lengths.rates, 0.0)
        weights = np.where(served, 1.0, 0.0) if rates.sum() <= 0 else rates
        weights = weights / weights.sum()

        def mean(values: Array) -> float:
            return float((weights * values).sum())

        return cls(
            output=mean(lengths.outputs),
            prefill=mean(lengths.prefills),
            pairs=mean(lengths.pairs),
            block_steps=mean(lengths.block_steps),
            context_steps=mean(lengths.context_steps),
            square=mean(lengths.prefills * lengths.prefills),
        )


@dataclass(frozen=True)
class _Engine:
    capability: Capability
    steps: StepTimes
    slo: ServiceLevel
    target: float
    admission: float

    @cached_property
    def step_budget(self) -> float:
        """Seconds that a step may take, so that as many are as short as promised as measured."""
        residuals = self.steps.measured.residuals
        margin = 1.0 + min(max(residuals.p95 if residuals else 0.0, 0.0), 0.5)
        return min((self.slo.per_token_seconds or math.inf) / margin, _MOST_SECONDS)

    def serves(self, lengths: Lengths, share: float = _FIRST_TOKEN_SHARE) -> Array:
        """Of which buckets an idle replica computes prompts within a share of what is promised."""
        most = self.capability.num_blocks * self.capability.block_size
        fits: Array = lengths.tokens <= most
        promised = self.slo.first_token_seconds
        if promised is None:
            return fits
        return fits & (lengths.firsts <= share * promised * self._prompt_rate_alone)

    @cached_property
    def _prompt_rate_alone(self) -> float:
        return self.prompt_rate(1, 1)

    def prompt_rate(self, num_decodes: int, context_tokens: int) -> float:
        """Prompt tokens per second beside so many decodes."""
        most = max(self.capability.max_step_tokens - num_decodes, _LEAST_CHUNK)
        decodes = self.steps.seconds(num_decodes, context_tokens)
        chunk = min(_CHUNK_TOKENS, most)
        for _ in range(3):  # the time of a token depends on how many there are
            with_chunk = self.steps.seconds(num_decodes, context_tokens, chunk, chunk * chunk // 2)
            per_token = max((with_chunk - decodes) / chunk, 1e-9)
            fitting = min(max(int((self.step_budget - decodes) / per_token), _LEAST_CHUNK), most)
            if abs(fitting - chunk) <= _CHUNK_STEP * chunk:
                break
            chunk = fitting
        else:
            with_chunk = self.steps.seconds(num_decodes, context_tokens, chunk, chunk * chunk // 2)
        return chunk / max(with_chunk, 1e-9)

    def work_on(self, mean: _Mean, lengths: Lengths, served: Array) -> Capacity:
        """Find how many requests may run at a time, and what that does."""
        edge, why = self._edge(mean)
        edge_rate = edge / (mean.output * self._step(mean, edge))
        at_target = self._concurrency_of(mean, self.target * edge_rate, edge) if why else math.inf
        by_blocks = self.target * self._in_blocks(mean)
        by_seats = min(self.target * self.capability.max_num_seqs, self._in_range(mean))
        memory = min(by_blocks, by_seats)
        running = min(at_target, memory)
        binding = why if running == at_target else "blocks" if memory == by_blocks else "seats"
        seconds = self._step(mean, running)
        rate = running / (mean.output * seconds)
        loads = self._loads(
            mean,
            lengths,
            served,
            memory_rate=memory / (mean.output * seconds),
            time_rate=self.target * edge_rate if why else math.inf,
            is_by_blocks=memory == by_blocks,
        )
        return Capacity(
            requests_per_second=rate,
            tokens_per_second=rate * mean.output,
            binding=binding,
            concurrency=running,
            loads=loads,
            quick_loads=loads,
            prompt_tokens_per_second=self.prompt_rate(*self._decodes(mean, running)),
        )

    def _edge(self, mean: _Mean) -> tuple[float, str]:
        """The largest concurrency that keeps all promises, and which one it would break next.

        Where all seats keep them, more than that is looked at: those of an H100 that is busy with
        prompts do hardly more at once than three quarters of them, so that a share of the seats
        says nothing of the time that is left. Not where blocks end first: they are what is planned
        for then, as `admission` says. None, too, if it is not known what such steps take.

        Requests are whole: where N and a part keep them, N run, half a one less in the mean. To
        count N itself would make steps: of three requests with long prompts one less is a third,
        for half a percent more of them, and replicas would come and go with the chance of which
        prompts come.
        """
        most = self._in_range(mean)
        low, why = self._narrow(mean, 1.0, math.floor(most) + 1.0)
        if low == 1.0:  # prompts are most of the work, and now and then nothing runs
            low, below = self._narrow(mean, _LEAST_CONCURRENCY, 1.0 + _EDGE_STEP)
            why = below or why
        if not why and min(most, self._in_blocks(mean)) >= self.capability.max_num_seqs:
            most = float(self.capability.max_step_tokens)
            low, why = self._narrow(mean, low, most + 1.0)
        return min(max(low - 0.5, min(low, 1.0)), most), why

    def _narrow(self, mean: _Mean, low: float, high: float) -> tuple[float, str]:
        """Between two concurrencies, the last that keeps the promises, and which breaks then."""
        why = ""
        while high - low > _EDGE_STEP * low:
            middle = (low + high) / 2
            broken = self._broken(mean, middle)
            if broken:
                high, why = middle, broken
            else:
                low = middle
        return low, why

    def _in_range(self, mean: _Mean) -> float:
        """Seats, as far as it is known what steps with so many take."""
        seats = float(self.capability.max_num_seqs)
        known = self.steps.limits
        if known is None:
            return seats
        by_context = known.context_tokens * mean.output / mean.context_steps
        return max(min(seats, known.num_decodes, by_context), 1.0)

    def _in_blocks(self, mean: _Mean) -> float:
        """Requests that all blocks hold."""
        block_mean = _GROWTH * mean.block_steps / mean.output
        return self.admission * self.capability.num_blocks / block_mean

    def _broken(self, mean: _Mean, running: float) -> str:
        decodes, context = self._decodes(mean, running)
        seconds = self._step(mean, running)
        prefill = running * mean.prefill / mean.output
        if seconds > self.step_budget or prefill + running > self.capability.max_step_tokens:
            return "step"
        promised = self.slo.first_token_seconds
        if promised is None:
            return ""
        rate = self.prompt_rate(decodes, context)
        busy = running / (mean.output * seconds) * mean.prefill / rate
        if busy >= 1.0:
            return "step"
        if running <= 1.0 and busy <= _LEAST_BUSY:
            return ""
        own = mean.prefill / rate
        wait = busy / (1.0 - busy) * mean.square / (2 * mean.prefill) / rate
        return "first_token" if own + _TAIL * wait > _FIRST_TOKEN_SHARE * promised else ""

    def _concurrency_of(self, mean: _Mean, rate: float, most: float) -> float:
        """How many run when so many come per second."""
        low, high = 0.0, most
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if middle / (mean.output * self._step(mean, middle)) < rate:
                low = middle
            else:
                high = middle
        return high

    def _step(self, mean: _Mean, running: float) -> float:
        """Mean seconds of a step with the prompts that come meanwhile."""
        decodes, context = self._decodes(mean, running)
        ended = running / mean.output
        return self.steps.seconds(
            decodes, context, math.ceil(ended * mean.prefill), math.ceil(ended * mean.pairs)
        )

    def _decodes(self, mean: _Mean, running: float) -> tuple[int, int]:
        return max(round(running), 1), max(round(running * mean.context_steps / mean.output), 1)

    def _loads(
        self,
        mean: _Mean,
        lengths: Lengths,
        served: Array,
        *,
        memory_rate: float,
        time_rate: float,
        is_by_blocks: bool,
    ) -> Loads:
        """Each bucket's part of memory and of time, by what it takes beside the mean request."""
        output, context, prefill, pair = self._marginal_costs()
        mean_time = (
            mean.output * output
            + mean.context_steps * context
            + mean.prefill * prefill
            + mean.pairs * pair
        )
        mean_memory = mean.block_steps if is_by_blocks else mean.output
        times = (
            lengths.outputs * output
            + lengths.context_steps * context
            + lengths.prefills * prefill
            + lengths.pairs * pair
        ) / (mean_time * time_rate)
        held = lengths.block_steps if is_by_blocks else lengths.outputs
        memories = held / (mean_memory * memory_rate)
        return Loads(np.where(served, memories, math.inf), np.where(served, times, math.inf))

    def _marginal_costs(self) -> tuple[float, float, float, float]:
        """Seconds of steps that an output token, a context step, a prompt token and a pair add."""
        seconds = self.steps.seconds
        many, most = 64, self.capability.max_step_tokens
        chunk = min(2048, most)
        base = seconds(1, 1)
        per_context = max(seconds(many, 1 << 16) - seconds(many, 1), 0.0) / (1 << 16)
        per_decode = max(seconds(many, many) - base, 0.0) / many + 1e-7
        per_prompt = max(seconds(1, 1, chunk, 0) - base, 0.0) / chunk + 1e-8
        per_pair = max(seconds(1, 1, chunk, 1 << 20) - seconds(1, 1, chunk, 0), 0.0) / (1 << 20)
        return per_decode, per_context, per_prompt, per_pair
