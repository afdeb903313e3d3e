"""A scheduler with an executor that believes nothing: it checks each batch against the contract."""

import math
import zlib
from dataclasses import dataclass, field
from functools import cache

from quire_engine.execution.base import Batch, StepResult
from quire_engine.kvcache.manager import BlockManager
from quire_engine.profiles.step_time import StepTimeModel
from quire_engine.protocol.beams import BeamParams
from quire_engine.protocol.messages import Priority, Thresholds, TokenDelta, sequence_id
from quire_engine.protocol.sampling import SamplingParams, TokenLogprobs
from quire_engine.scheduler.admission import Refusal
from quire_engine.scheduler.beam_search import BeamSearch
from quire_engine.scheduler.beams import BeamGroup
from quire_engine.scheduler.pace import Pace
from quire_engine.scheduler.request import Request
from quire_engine.scheduler.scheduler import Scheduler


def next_token(token_ids: list[int]) -> int:
    """Stand for a model: the next token depends on all before it."""
    return (sum(token_ids) * 31 + len(token_ids)) % 50


def score_next(token_ids: list[int], num_top: int) -> TokenLogprobs:
    """Stand for a model's scores: of 50 tokens, unlike for each history, and never equal."""
    return _score(zlib.crc32(repr(token_ids).encode()), num_top)


@cache
def _score(seed: int, num_top: int) -> TokenLogprobs:
    logits = [math.sin(seed % 9973 + 1.7 * token) * 4 for token in range(50)]
    total = math.log(sum(map(math.exp, logits)))
    best = sorted(range(50), key=lambda token: -logits[token])[:num_top]
    values = [logits[token] - total for token in best]
    return TokenLogprobs(values[0], 1, tuple(best), tuple(values))


def spell(token_id: int) -> bytes:
    """Stand for a vocabulary: one of seven letters."""
    return b"abcdefg"[token_id % 7 : token_id % 7 + 1]


def search(
    prompt: list[int], params: BeamParams, max_tokens: int, stops: tuple[int, ...] = ()
) -> list[list[int]]:
    """Return what a beam search finds when it is alone, the best first."""
    alone = BeamSearch(params, max_tokens=max_tokens, stop_token_ids=frozenset(stops), spell=spell)
    while not alone.is_over:
        texts = [prompt + [node.token_id for node in beam.path()] for beam in alone.beams]
        alone.advance([score_next(text, alone.num_candidates) for text in texts])
    return [[node.token_id for node in ended.hypothesis.path()] for ended in alone.ended]


def generate(prompt: list[int], num_tokens: int) -> list[int]:
    """Return what a request generates when it is alone."""
    token_ids = list(prompt)
    for _ in range(num_tokens):
        token_ids.append(next_token(token_ids))
    return token_ids[len(prompt) :]


@dataclass
class Row:
    """What an executor knows of a row."""

    token_ids: list[int]
    block_ids: list[int]
    num_logprobs: int | None = None


@dataclass
class SuspiciousExecutor:
    """Keeps what a device would: rows, and which tokens each block holds."""

    block_size: int
    rows: dict[int, Row] = field(default_factory=dict)
    written: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    """(block, slot) to the whole prefix whose last token's KV is there."""

    def run(self, batch: Batch) -> StepResult:
        for row in batch.ended:
            del self.rows[row]
        for started in batch.started:
            assert started.row not in self.rows, "a row is started twice"
            self.rows[started.row] = Row(
                list(started.token_ids), list(started.block_ids), started.sampling.num_logprobs
            )
        for appended in batch.appended:
            table = self.rows[appended.row].block_ids
            replaced = appended.block_ids[: len(table) - appended.index]
            copied = {target for _, target in batch.copies}
            assert appended.index <= len(table), "blocks are appended at the wrong place"
            assert copied.issuperset(replaced), "blocks are replaced by others than their copies"
            table[appended.index :] = appended.block_ids
        for revised in batch.revised:
            known = self.rows[revised.row]
            assert len(revised.token_ids) + revised.first_token == len(known.token_ids)
            known.token_ids[revised.first_token :] = revised.token_ids
            assert len(revised.block_ids) + revised.first_block >= len(known.block_ids)
            known.block_ids[revised.first_block :] = revised.block_ids
        for source, destination in batch.copies:
            for slot in range(self.block_size):
                if (source, slot) in self.written:
                    self.written[destination, slot] = self.written[source, slot]
        chunks = batch.chunks
        assert batch.total_tokens == sum(chunks.num_tokens)
        assert len(set(chunks.rows)) == len(chunks.rows), "a row is computed twice"
        self._write(batch)
        rows = self._sampling_rows(batch)
        scores = [self._score(row) for row in rows]
        return StepResult([self._sample(row) for row in rows], scores if any(scores) else None)

    def _write(self, batch: Batch) -> None:
        chunks = batch.chunks
        targets: set[tuple[int, int]] = set()
        for index, (row, start, count) in enumerate(
            zip(chunks.rows, chunks.starts, chunks.num_tokens, strict=True)
        ):
            state = self.rows[row]
            assert count > 0
            assert start + count <= len(state.token_ids), "tokens that nobody knows"
            assert (index < chunks.num_decodes) <= (count == 1 and chunks.samples[index])
            assert chunks.samples[index] == (start + count == len(state.token_ids))
            for position in range(start):
                slot = self._slot(state, position)
                assert self.written.get(slot) == tuple(state.token_ids[: position + 1]), "lost KV"
            for position in range(start, start + count):
                slot = self._slot(state, position)
                assert slot not in targets, "two rows write one slot"
                targets.add(slot)
                self.written[slot] = tuple(state.token_ids[: position + 1])

    def _slot(self, state: Row, position: int) -> tuple[int, int]:
        block_id = state.block_ids[position // self.block_size]
        assert block_id > 0, "the null block is in a table"
        return block_id, position % self.block_size

    def _sampling_rows(self, batch: Batch) -> list[int]:
        return [
            row
            for row, samples in zip(batch.chunks.rows, batch.chunks.samples, strict=True)
            if samples
        ]

    def _score(self, row: int) -> TokenLogprobs | None:
        num_top = self.rows[row].num_logprobs
        return None if num_top is None else score_next(self.rows[row].token_ids, num_top)

    def _sample(self, row: int) -> int:
        token_ids = self.rows[row].token_ids
        token_ids.append(next_token(token_ids))
        return token_ids[-1]


def limits(
    *,
    admission: float = 1.0,
    background: float | None = None,
    first_token: float | None = None,
    per_token: float | None = None,
    max_queue_seconds: float = 1e6,
    max_waiting_requests: int = 1000,
) -> Thresholds:
    """Return thresholds that limit nothing but what is named."""
    return Thresholds(
        admission=admission,
        background=admission if background is None else background,
        slo_time_to_first_token_seconds=first_token,
        slo_time_per_output_token_seconds=per_token,
        max_queue_seconds=max_queue_seconds,
        max_waiting_requests=max_waiting_requests,
    )


class Harness:
    """Drives a scheduler; every step is checked, and takes a second.

    Parameters
    ----------
    step_time
        What the scheduler believes of steps.
    """

    def __init__(
        self,
        *,
        num_blocks: int,
        block_size: int = 4,
        max_num_seqs: int = 4,
        max_num_batched_tokens: int = 16,
        ageing_seconds: float = 1000.0,
        limits: Thresholds | None = None,
        step_time: StepTimeModel | None = None,
    ) -> None:
        self.scheduler = Scheduler(
            BlockManager(num_blocks=num_blocks, block_size=block_size, secret=b"test"),
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            ageing_seconds=ageing_seconds,
            limits=limits,
            pace=Pace(
                step_time,
                step_seconds_budget=limits.slo_time_per_output_token_seconds if limits else None,
                max_num_batched_tokens=max_num_batched_tokens,
            ),
        )
        self.executor = SuspiciousExecutor(block_size)
        self.budget = max_num_batched_tokens
        self.now = 0.0
        self.num_added = 0
        self.requests: dict[str, Request] = {}
        self.outputs: dict[str, list[int]] = {}
        self.refused: dict[str, Refusal] = {}
        """Requests that were refused, on arrival or while they waited."""

    def add(
        self,
        prompt: list[int],
        *,
        max_tokens: int = 5,
        priority: Priority = Priority.INTERACTIVE,
        stop_token_ids: tuple[int, ...] = (),
        salt: str = "",
        deadline_seconds: float | None = None,
        starts_now: bool = False,
        num_sequences: int = 1,
        beams: BeamParams | None = None,
    ) -> str:
        """Bring a request; returns its id, whether it was let in or not."""
        made = []
        num_logprobs = None if beams is None else beams.width + len(set(stop_token_ids))
        for index in range(num_sequences if beams is None else beams.width):
            self.num_added += 1
            number = self.num_added - index
            request = Request(
                request_id=sequence_id(f"request-{number}", index)
                if beams is not None
                else f"request-{self.num_added}",
                client_id="client",
                prompt_token_ids=prompt,
                sampling=SamplingParams(
                    max_tokens=max_tokens,
                    stop_token_ids=stop_token_ids,
                    num_logprobs=num_logprobs,
                ),
                priority=priority,
                seniority=(int(priority), self.now, self.num_added),
                seed=index,
                max_length=len(prompt) + max_tokens,
                table=self.scheduler.blocks.open_table({"salt": salt}),
            )
            if deadline_seconds is not None:
                request.deadline = self.now + deadline_seconds
            made.append(request)
        leader, *followers = made
        if beams is not None:
            search = BeamSearch(
                beams,
                max_tokens=max_tokens,
                stop_token_ids=frozenset(stop_token_ids),
                spell=spell,
            )
            BeamGroup(search, made, num_sequences)
        refusal = self.scheduler.add(leader, self.now, starts_now=starts_now, followers=followers)
        for request in made:
            if refusal is not None:
                self.refused[request.request_id] = refusal
            self.requests[request.request_id] = request
            self.outputs[request.request_id] = []
        return leader.request_id

    def step(self) -> list[tuple[str, TokenDelta]]:
        self.now += 1.0
        plan = self.scheduler.schedule(self.now)
        assert plan.batch.total_tokens <= self.budget
        for refused, refusal in self.scheduler.take_refused():
            for request in self.requests.values():
                if refused in (request, request.leader):
                    self.refused[request.request_id] = refusal
        result = self.executor.run(plan.batch)
        is_busy = bool(self.scheduler.running or self.scheduler.waiting)
        assert bool(plan.requests) == is_busy, "work, and nothing was scheduled"
        deltas = self.scheduler.postprocess(plan, result)
        self.scheduler.check_invariants()
        for _, delta in deltas:
            self.outputs[delta.request_id] += delta.token_ids
        return deltas

    def run_to_end(self, max_steps: int = 10_000) -> int:
        for step in range(max_steps):
            if not self.scheduler.has_work():
                return step
            self.step()
        raise AssertionError(f"work is left after {max_steps} steps")
