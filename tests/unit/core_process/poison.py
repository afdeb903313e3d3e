"""An executor with requests in it that do harm: they raise, or their KV turns into NaN."""

from dataclasses import dataclass
from enum import StrEnum

import torch

from quire_engine.execution.base import Batch, Executor, Progress, StepResult
from quire_engine.protocol.messages import ModelFacts

NULL_BLOCK = 0


class Harm(StrEnum):
    """What a culprit does once it has computed enough."""

    RAISE = "raise"
    RAISE_LATE = "raise late"
    """After the real executor has computed, so that its rows have changed."""
    NAN = "nan"


@dataclass
class Culprit:
    """A row that does harm from a position on."""

    harm: Harm
    position: int
    table: list[int]


class PoisonError(Exception):
    """What a culprit raises."""


class PoisonedExecutor(Executor):
    """Runs a real executor; rows whose prompt begins with a token of `harms` are culprits.

    Parameters
    ----------
    inner
        Loaded, its cache allocated; its cache is filled with NaN here, as far as nobody may read.
    harms
        What rows do, by the first token of their prompt: what, and from which position on.
    """

    def __init__(self, inner: Executor, harms: dict[int, tuple[Harm, int]]) -> None:
        self._inner = inner
        self._harms = harms
        self._culprits: dict[int, Culprit] = {}
        self.num_runs = 0
        self.cache[NULL_BLOCK + 1 :] = float("nan")

    @property
    def cache(self) -> torch.Tensor:
        """The real KV memory, by block."""
        cache: torch.Tensor = self._inner._state.cache  # type: ignore[attr-defined]
        return cache

    def load(self, progress: Progress) -> None:
        raise NotImplementedError

    def allocate_cache(self) -> ModelFacts:
        raise NotImplementedError

    def run(self, batch: Batch) -> StepResult:
        self.num_runs += 1
        self._follow(batch)
        chunks = zip(batch.chunks.rows, batch.chunks.starts, batch.chunks.num_tokens, strict=True)
        due = [
            culprit
            for row, start, count in chunks
            if (culprit := self._culprits.get(row)) and start + count > culprit.position
        ]
        if any(culprit.harm is Harm.RAISE for culprit in due):
            raise PoisonError
        result = self._inner.run(batch)
        for culprit in due:
            if culprit.harm is Harm.NAN:
                self.cache[culprit.table] = float("nan")
        if any(culprit.harm is Harm.RAISE_LATE for culprit in due):
            raise PoisonError
        return result

    def close(self) -> None:
        self._inner.close()

    def _follow(self, batch: Batch) -> None:
        for row in batch.ended:
            self._culprits.pop(row, None)
        for started in batch.started:
            self._culprits.pop(started.row, None)
            harm = self._harms.get(started.token_ids[0])
            if harm is not None:
                self._culprits[started.row] = Culprit(*harm, list(started.block_ids))
        for appended in batch.appended:
            culprit = self._culprits.get(appended.row)
            if culprit is not None:
                culprit.table[appended.index :] = appended.block_ids
