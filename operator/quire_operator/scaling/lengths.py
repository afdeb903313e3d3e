"""What requests of each length take of an engine, by bucket: the same for all accelerators."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quire_operator.scaling.answers import Bucket
from quire_operator.scaling.newest import Newest

Array = np.ndarray[Any, np.dtype[Any]]
"""By bucket."""


@dataclass(frozen=True, slots=True)
class Mean:
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


@dataclass(frozen=True, slots=True, eq=False)
class Lengths:
    """Of a mix."""

    rates: Array
    """Requests per second."""
    tokens: Array
    """Of prompt and output together."""
    outputs: Array
    """Tokens."""
    prefills: Array
    """Of the prompt, those that are not cached."""
    firsts: Array
    """The same, as it says whether they are computed in time."""
    pairs: Array
    """Of a computed prompt token and one that it attends to."""
    context_steps: Array
    """Context tokens, summed over the steps that it decodes in."""
    block_steps: Array
    """Blocks that it holds, summed over the same."""
    _means: dict[bytes, Mean] = field(default_factory=dict)
    """By which buckets are served: many accelerators serve the same ones."""

    def mean(self, served: Array) -> Mean:
        """Over those that are served; there are some."""
        key = served.tobytes()
        if key not in self._means:
            self._means[key] = self._mean(served)
        return self._means[key]

    def _mean(self, served: Array) -> Mean:
        rates = np.where(served, self.rates, 0.0)
        weights = np.where(served, 1.0, 0.0) if rates.sum() <= 0 else rates
        weights = weights / weights.sum()

        def of(values: Array) -> float:
            return float((weights * values).sum())

        return Mean(
            output=of(self.outputs),
            prefill=of(self.prefills),
            pairs=of(self.pairs),
            block_steps=of(self.block_steps),
            context_steps=of(self.context_steps),
            square=of(self.prefills * self.prefills),
        )


_newest: Newest[Lengths] = Newest(16)
"""Accelerators are asked for the same mix one after the other."""


def lengths_of(mix: tuple[Bucket, ...], block_size: int) -> Lengths:
    """Compute them, once for each mix and size of blocks."""
    return _newest.find((mix,), block_size, lambda: _lengths_of(mix, block_size))


def _lengths_of(mix: tuple[Bucket, ...], block_size: int) -> Lengths:
    prompts = np.array([one.prompt_tokens for one in mix])
    outputs = np.array([one.output_tokens for one in mix])
    prefills = np.array([one.prefill_tokens for one in mix])
    firsts = [one.first_tokens or one.prefill_tokens for one in mix]
    means = prompts + outputs / 2
    return Lengths(
        rates=np.array([one.rate for one in mix]),
        tokens=prompts + outputs,
        outputs=outputs,
        prefills=prefills,
        firsts=np.array(firsts),
        pairs=prefills * (prompts - prefills / 2),
        context_steps=outputs * means,
        block_steps=outputs * (means / block_size + 0.5),
    )
