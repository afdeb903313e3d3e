"""What the scheduler decided for one step."""

from dataclasses import dataclass, field
from itertools import compress

from quire_engine.execution.base import Batch
from quire_engine.profiles.step_time import count_pairs
from quire_engine.profiles.step_time_fit import StepTimeFitter
from quire_engine.scheduler.pace import StepLoad
from quire_engine.scheduler.request import Request


@dataclass(slots=True)
class Plan:
    """A batch for the executor, and whose it is."""

    batch: Batch
    requests: list[Request] = field(default_factory=list)
    """One per chunk of the batch, in the same order."""

    def add(self, request: Request, num_tokens: int) -> None:
        """Schedule a request's next `num_tokens`; its blocks are already there."""
        start = request.num_computed_tokens
        chunks = self.batch.chunks
        chunks.rows.append(request.row)  # type: ignore[arg-type]  # running requests have rows
        chunks.starts.append(start)
        chunks.num_tokens.append(num_tokens)
        chunks.samples.append(start + num_tokens == len(request.token_ids))
        request.num_computed_tokens = start + num_tokens
        self.batch.total_tokens += num_tokens
        self.requests.append(request)

    def add_decodes(self, requests: list[Request]) -> None:
        """Schedule the newest token of each; comes first in a plan, and once."""
        chunks = self.batch.chunks
        num_decodes = len(requests)
        chunks.rows += [request.row for request in requests]  # type: ignore[misc]  # they run
        chunks.starts += [request.num_computed_tokens for request in requests]
        chunks.num_tokens += [1] * num_decodes
        chunks.samples += [True] * num_decodes
        chunks.num_decodes = num_decodes
        for request in requests:
            request.num_computed_tokens += 1
        self.batch.total_tokens += num_decodes
        self.requests += requests

    def sampling(self) -> list[Request]:
        """Return the requests that get a token in each of its steps."""
        samples = self.batch.chunks.samples
        return self.requests if all(samples) else list(compress(self.requests, samples))

    def decode_load(self) -> StepLoad:
        """Return the decodes as a load; called before any chunk is added."""
        starts = self.batch.chunks.starts
        return StepLoad(num_decodes=len(starts), context_tokens=sum(starts) + len(starts))

    def measure(self, step_times: StepTimeFitter, seconds: float) -> None:
        """Let a step-time model learn how long this plan took."""
        chunks = self.batch.chunks
        num_decodes = chunks.num_decodes
        step_times.observe(
            num_decodes,
            sum(chunks.starts[:num_decodes]) + num_decodes,
            self.batch.total_tokens - num_decodes,
            sum(map(count_pairs, chunks.starts[num_decodes:], chunks.num_tokens[num_decodes:])),
            seconds,
        )
