"""What one engine does with prompts and decodes beside each other, whatever the mix of them."""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

from quire_operator.scaling.inputs import Capability, ServiceLevel
from quire_operator.scaling.lengths import Array, Lengths
from quire_operator.scaling.step_times import StepTimes

_CHUNK_TOKENS = 512
"""At this size the time of a prompt's token is looked at first."""
_CHUNK_STEP = 0.05
"""Of the size: so near the one that fits is looked for. Time by token hardly changes within it."""
_LEAST_CHUNK = 16
"""So many tokens a prompt gets of every step, as the scheduler has it."""
FIRST_TOKEN_SHARE = 0.9
"""Of the promised time: the rest is for the network and the tokenizer."""
_MOST_SECONDS = 10.0
"""Of a step, where nothing is promised."""
_MOST_KEPT = 256


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds that a little more of something adds to steps."""

    output: float
    """Of an output token."""
    context: float
    """Of a token of context, a step."""
    prompt: float
    """Of a prompt token."""
    pair: float


@dataclass(frozen=True)
class Engine:
    """An engine and what is promised of it."""

    capability: Capability
    steps: StepTimes
    slo: ServiceLevel

    @cached_property
    def alone_seconds(self) -> float:
        """Per token of one request alone."""
        return self.steps.seconds(1, 1)

    @cached_property
    def step_budget(self) -> float:
        """Seconds that a step may take, so that as many are as short as promised as measured."""
        residuals = self.steps.measured.residuals
        margin = 1.0 + min(max(residuals.p95 if residuals else 0.0, 0.0), 0.5)
        return min((self.slo.per_token_seconds or math.inf) / margin, _MOST_SECONDS)

    def serves(self, lengths: Lengths, share: float = FIRST_TOKEN_SHARE) -> Array:
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
        seconds = self.steps.predict
        most = max(self.capability.max_step_tokens - num_decodes, _LEAST_CHUNK)
        decodes = seconds(num_decodes, context_tokens)
        chunk = min(_CHUNK_TOKENS, most)
        for _ in range(3):  # the time of a token depends on how many there are
            with_chunk = seconds(num_decodes, context_tokens, chunk, chunk * chunk // 2)
            per_token = max((with_chunk - decodes) / chunk, 1e-9)
            fitting = min(max(int((self.step_budget - decodes) / per_token), _LEAST_CHUNK), most)
            if abs(fitting - chunk) <= _CHUNK_STEP * chunk:
                break
            chunk = fitting
        else:
            with_chunk = seconds(num_decodes, context_tokens, chunk, chunk * chunk // 2)
        return chunk / max(with_chunk, 1e-9)

    @cached_property
    def costs(self) -> Costs:
        """What more of each kind of work adds."""
        seconds = self.steps.seconds
        many, most = 64, self.capability.max_step_tokens
        chunk = min(2048, most)
        base = seconds(1, 1)
        per_context = max(seconds(many, 1 << 16) - seconds(many, 1), 0.0) / (1 << 16)
        per_decode = max(seconds(many, many) - base, 0.0) / many + 1e-7
        per_prompt = max(seconds(1, 1, chunk, 0) - base, 0.0) / chunk + 1e-8
        per_pair = max(seconds(1, 1, chunk, 1 << 20) - seconds(1, 1, chunk, 0), 0.0) / (1 << 20)
        return Costs(per_decode, per_context, per_prompt, per_pair)


@lru_cache(maxsize=_MOST_KEPT)
def engine_of(capability: Capability, expected: Capability | None, slo: ServiceLevel) -> Engine:
    """Make one, or take the one that was made before: mixes change, and engines hardly ever do."""
    return Engine(capability, StepTimes.of(capability, expected), slo)
