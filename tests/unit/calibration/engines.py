"""Engines in virtual time whose step times are known, for calibrations to find out."""

import random
from collections.abc import Callable

from quire_engine.config import EngineConfig
from quire_engine.execution.base import Batch, StepResult
from quire_engine.execution.clocks import VirtualClock
from quire_engine.execution.simulated import SimulatedExecutor
from quire_engine.profiles.step_time import StepLimits, StepTimeModel
from quire_engine.protocol.messages import ModelFacts
from tests.unit.simulated.builders import build_config

CONFIG = build_config(max_num_seqs=64, max_model_len=4096, num_blocks=4000)


def truth(**changes: object) -> StepTimeModel:
    """A small model on a fast device: a graph for decodes, a launch at a time for prompts."""
    fields: dict[str, object] = {
        "source": "truth",
        "compute_tokens": (1, 64, 2048),
        "compute_seconds": (1e-3, 1.5e-3, 20e-3),
        "seconds_per_sequence": 5e-6,
        "seconds_per_context_token": 30e-9,
        "seconds_per_pair": 2e-9,
        "limits": StepLimits(num_decodes=64, context_tokens=1 << 17, prefill_tokens=2048),
    }
    return StepTimeModel(**(fields | changes))  # type: ignore[arg-type]


class KnownEngine(SimulatedExecutor):
    """Takes the time of a model, and keeps account of rows and blocks.

    Parameters
    ----------
    disturb
        Makes of a step's seconds those that it takes in truth.
    fail_at
        The run with this number raises.
    fails_to_end
        Runs that only end rows raise.
    """

    def __init__(
        self,
        model: StepTimeModel | None = None,
        config: EngineConfig = CONFIG,
        *,
        disturb: Callable[[float], float] = lambda seconds: seconds,
        fail_at: int | None = None,
        fails_to_end: bool = False,
    ) -> None:
        self.clock = VirtualClock()
        super().__init__(config, clock=self.clock)
        if model is not None:
            self.step_time = model
        self.load(lambda _stage, _fraction: None)
        self.facts: ModelFacts = self.allocate_cache()
        self.rows: dict[int, list[int]] = {}
        self.num_runs = 0
        self.num_steps = 0
        self.most_rows = 0
        self._disturb = disturb
        self._fail_at = fail_at
        self._fails_to_end = fails_to_end
        self.is_lost = False
        """Whether the device can compute nothing any more."""

    def run(self, batch: Batch) -> StepResult:
        self.num_runs += 1
        ends_alone = bool(batch.ended) and not len(batch.chunks)
        if self.num_runs == self._fail_at or (ends_alone and self._fails_to_end):
            raise ValueError("a step that fails")
        self._account(batch)
        begin = self.clock.now()
        result = super().run(batch)
        seconds = self.clock.now() - begin
        if len(batch.chunks):
            self.num_steps += 1
            self.clock.sleep_until(begin + self._disturb(seconds))
        return result

    def probe(self) -> None:
        if self.is_lost:
            raise OSError("the device is lost")

    def _account(self, batch: Batch) -> None:
        for row in batch.ended:
            del self.rows[row]
        for started in batch.started:
            assert started.row not in self.rows
            self.rows[started.row] = started.block_ids
        held = [block for blocks in self.rows.values() for block in blocks]
        assert len(set(held)) == len(held)
        assert all(0 < block <= self.facts.num_blocks for block in held)
        self.most_rows = max(self.most_rows, len(self.rows))
        chunks = batch.chunks
        for row, start, count in zip(chunks.rows, chunks.starts, chunks.num_tokens, strict=True):
            end = start + count
            assert end <= self.facts.max_model_len
            assert end <= len(self.rows[row]) * self.facts.block_size


def noisy(seed: int, *, spread: float = 0.05, hiccups: float = 0.05) -> Callable[[float], float]:
    """Steps that differ a little, some of which something else interrupts."""
    rng = random.Random(seed)

    def disturb(seconds: float) -> float:
        hiccup = rng.uniform(1, 20) if rng.random() < hiccups else 0.0
        return seconds * max(1 + abs(rng.gauss(0, spread)) + hiccup, 1.0)

    return disturb
