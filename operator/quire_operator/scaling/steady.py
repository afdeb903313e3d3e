"""An engine in a steady state: so many requests decode at a time, all like the mean one of a mix.

With N of them N / output tokens end in each step, and as many prompts are computed beside.
"""

import math

from quire_operator.scaling.engines import FIRST_TOKEN_SHARE, Engine
from quire_operator.scaling.lengths import Mean

_GROWTH = 1.1
"""Blocks that admission reserves for what runs, of those it holds on average."""
_TAIL = 3.0
"""95th percentile of a wait over its mean, if waits are exponential."""
_EDGE_STEP = 0.01
"""Of the concurrency: so near its edge is looked for."""
_HALVINGS = 12
"""Of the concurrency's range, when the one of a rate is looked for: to 0.02 %."""
_LEAST_CONCURRENCY = 1e-3
_LEAST_BUSY = 0.25
"""Of its time a replica may be busy with prompts, however long they are. One alone would have to be
idle nearly always for prompts that take most of what is promised; but several share the wait.
"""


class Steady:
    """One engine with requests like this one."""

    def __init__(self, engine: Engine, mean: Mean) -> None:
        self._engine = engine
        self._mean = mean
        self._predict = engine.steps.predict
        self._most_tokens = engine.capability.max_step_tokens

    def decodes(self, running: float) -> tuple[int, int]:
        """Sequences that decode, and the tokens of their contexts."""
        mean = self._mean
        return round(running) or 1, round(running * mean.context_steps / mean.output) or 1

    def seconds(self, running: float) -> float:
        """Mean seconds of a step with the prompts that come meanwhile."""
        mean = self._mean
        ended = running / mean.output
        return self._predict(
            *self.decodes(running), math.ceil(ended * mean.prefill), math.ceil(ended * mean.pairs)
        )

    def rate(self, running: float) -> float:
        """Requests that end a second."""
        return running / (self._mean.output * self.seconds(running))

    def prompt_rate(self, running: float) -> float:
        """Prompt tokens a second, while prompts are computed."""
        return self._engine.prompt_rate(*self.decodes(running))

    @property
    def most_known(self) -> float:
        """Seats, as far as it is known what steps with so many take."""
        seats = float(self._engine.capability.max_num_seqs)
        known = self._engine.steps.limits
        if known is None:
            return seats
        by_context = known.context_tokens * self._mean.output / self._mean.context_steps
        return max(min(seats, known.num_decodes, by_context), 1.0)

    def in_blocks(self, admission: float) -> float:
        """Requests that all blocks hold, of which so large a part is for them."""
        block_mean = _GROWTH * self._mean.block_steps / self._mean.output
        return admission * self._engine.capability.num_blocks / block_mean

    def edge(self, admission: float) -> tuple[float, str]:
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
        most = self.most_known
        low, why = self._narrow(1.0, math.floor(most) + 1.0)
        if low == 1.0:  # prompts are most of the work, and now and then nothing runs
            low, below = self._narrow(_LEAST_CONCURRENCY, 1.0 + _EDGE_STEP)
            why = below or why
        seats = self._engine.capability.max_num_seqs
        if not why and min(most, self.in_blocks(admission)) >= seats:
            most = float(self._most_tokens)
            low, why = self._narrow(low, most + 1.0)
        return min(max(low - 0.5, min(low, 1.0)), most), why

    def _narrow(self, low: float, high: float) -> tuple[float, str]:
        """Between two concurrencies, the last that keeps the promises, and which breaks then."""
        why = ""
        while high - low > _EDGE_STEP * low:
            middle = (low + high) / 2
            broken = self._broken(middle)
            if broken:
                high, why = middle, broken
            else:
                low = middle
        return low, why

    def _broken(self, running: float) -> str:
        """Which promise so many break; empty: none."""
        mean, slo = self._mean, self._engine.slo
        prefill = running * mean.prefill / mean.output
        if prefill + running > self._most_tokens:
            return "step"
        seconds = self.seconds(running)
        if seconds > self._engine.step_budget:
            return "step"
        if slo.first_token_seconds is None:
            return ""
        rate = self.prompt_rate(running)
        busy = running / (mean.output * seconds) * mean.prefill / rate
        if busy >= 1.0:
            return "step"
        if running <= 1.0 and busy <= _LEAST_BUSY:
            return ""
        own = mean.prefill / rate
        wait = busy / (1.0 - busy) * mean.square / (2 * mean.prefill) / rate
        is_late = own + _TAIL * wait > FIRST_TOKEN_SHARE * slo.first_token_seconds
        return "first_token" if is_late else ""

    def running_at(self, rate: float, most: float) -> float:
        """How many run when so many come per second."""
        low, high = 0.0, most
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if self.rate(middle) < rate:
                low = middle
            else:
                high = middle
        return high
