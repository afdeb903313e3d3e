"""A simulated executor whose requests end where a script says: traces replayed in virtual time.

The scheduler and its ledger see max_tokens only, as they would with a real model; the true length
of an output is known here alone. Requests are told apart by their seed.
"""

from collections.abc import Iterator, Mapping
from itertools import islice

from quire_engine.config import EngineConfig
from quire_engine.execution.base import Batch, StepResult
from quire_engine.execution.clocks import VirtualClock
from quire_engine.execution.simulated import SimulatedExecutor, predict_batch
from quire_engine.execution.simulation_target import SimulationTarget

TOKEN = 97
"""What every request generates until it ends."""


class ScriptedExecutor(SimulatedExecutor):
    """Generates one token over and over, and a stop token at the scripted length.

    Parameters
    ----------
    output_lengths
        Tokens of each request's output, its stop token included, by the request's seed.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        clock: VirtualClock,
        output_lengths: Mapping[int, int],
        target: SimulationTarget | None = None,
    ) -> None:
        super().__init__(config, clock=clock, target=target)
        self._virtual_clock = clock
        self._output_lengths = output_lengths
        num_rows = config.scheduler.max_num_seqs
        self._ends = [0] * num_rows
        """Per row: the position of its stop token."""
        self._stop_ids = [TOKEN] * num_rows

    def count_steps(self, limit: int, *, positions: Mapping[int, int], until: float) -> int:
        """Return how many equal decode steps there are before one ends a request; at least 1.

        See `time_steps`.
        """
        return max(len(self.time_steps(limit, positions=positions, until=until)), 1)

    def time_steps(self, limit: int, *, positions: Mapping[int, int], until: float) -> list[float]:
        """Return when each of the equal decode steps ends, up to the first that ends a request.

        Parameters
        ----------
        limit
            Most steps that the scheduler can take as one.
        positions
            Row to the number of tokens it has computed, for all that run.
        until
            The last step starts before this time, in seconds of the clock.
        """
        steps = min(limit, *(self._ends[row] - start for row, start in positions.items()))
        context = sum(positions.values()) + len(positions)
        now = self._virtual_clock.now()
        ends: list[float] = []
        for seconds in self._decode_seconds(len(positions), context, max(steps, 1)):
            if now >= until:
                break
            now += seconds
            ends.append(now)
        return ends

    def rescript(self, row: int, end: int) -> None:
        """Let a running request's stop token be at another position, which is not reached yet."""
        self._ends[row] = end

    def run(self, batch: Batch) -> StepResult:
        """Let the batch's time pass; all steps of it, if there are several."""
        for started in batch.started:
            length = self._output_lengths[started.seed]
            self._ends[started.row] = started.num_prompt_tokens + length - 1
            self._stop_ids[started.row] = started.sampling.stop_token_ids[0]
        chunks = batch.chunks
        now = self._virtual_clock.now()
        if batch.num_steps > 1:
            context = sum(chunks.starts) + len(chunks)
            for seconds in self._decode_seconds(len(chunks), context, batch.num_steps):
                now += seconds
        elif batch.total_tokens:
            now += predict_batch(self.step_time, batch)
        self._virtual_clock.sleep_until(now)
        last = [
            self._stop_ids[row] if start + count + batch.num_steps - 1 >= self._ends[row] else TOKEN
            for row, start, count, samples in zip(
                chunks.rows, chunks.starts, chunks.num_tokens, chunks.samples, strict=True
            )
            if samples
        ]
        return StepResult([TOKEN] * (len(last) * (batch.num_steps - 1)) + last)

    def _decode_seconds(self, num_rows: int, context: int, num_steps: int) -> Iterator[float]:
        return islice(self.step_time.predict_decodes(num_rows, context), num_steps)
