"""What a step of the scheduler does for beams, beside what it does for all requests.

take      scores of the beams' next tokens are kept until those of all beams of a search are
there; after a preemption they come one after the other
advance   the search chooses the next beams, or is over
spread    each of them is carried on: by the request that carried its parent, or, for a second
child, by one whose beam died, on a copy of the parent's block table
announce  the executor is told what is different in the rows
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

from quire_engine.execution.base import AppendedBlocks, RevisedRow, StartedRow, StepResult
from quire_engine.kvcache.block import Block
from quire_engine.protocol.messages import FinishReason, TokenDelta, sequence_id
from quire_engine.protocol.sampling import TokenLogprobs
from quire_engine.scheduler.beam_search import Ended, Extension
from quire_engine.scheduler.beams import BeamGroup, Scored, ToldRow, first_difference
from quire_engine.scheduler.plan import Plan
from quire_engine.scheduler.request import Request
from quire_engine.scheduler.roster import Roster

TellStart = Callable[[Request], TokenDelta]


class BeamSteps:
    """Carries the searches of a roster from step to step."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._blocks = roster.blocks
        self._groups = roster.beam_groups

    def shares_tail(self, request: Request) -> bool:
        """Whether the block that a beam writes to next is another's too."""
        index = request.num_computed_tokens // self._blocks.block_size
        blocks = request.table.blocks
        return index < len(blocks) and blocks[index].ref_count > 1

    def own_tail(self, plan: Plan, request: Request) -> None:
        """Copy that block, for the beam alone; one must be free."""
        copy = self._blocks.make_writable(request.table, request.num_computed_tokens)
        if copy is not None:
            plan.batch.copies.append(copy)

    def copying(self) -> set[str]:
        """Return the beams, by id, that will copy a block in the next decodes.

        Of those that share a block the last one to write keeps it, if all of them write.
        """
        size = self._blocks.block_size
        copying: set[str] = set()
        for group in self._groups:
            writers: defaultdict[Block, list[str]] = defaultdict(list)
            for carrier in group.carriers:
                if carrier.is_decoding and self.shares_tail(carrier):
                    block = carrier.table.blocks[carrier.num_computed_tokens // size]
                    writers[block].append(carrier.request_id)
            for block, ids in writers.items():
                copying.update(ids[1:] if block.ref_count == len(ids) else ids)
        return copying

    def step(
        self, plan: Plan, result: StepResult, tell_start: TellStart, ended_at: float | None
    ) -> list[tuple[str, TokenDelta]]:
        """Take in what a step computed of beams; returns each client's news.

        Parameters
        ----------
        tell_start
            What clients hear once a prompt is done; until the end they hear nothing else.
        ended_at
            When the step had ended, if anybody said.
        """
        news = []
        self._take_scores(plan, result)
        for group in self._groups.copy():
            leader = group.leader
            if group.is_complete:
                news += [(leader.client_id, d) for d in self._advance(group, tell_start, ended_at)]
            elif leader.request_id in group.scores:
                self._join(group)
            if leader.finish_reason is None:
                self._roster.ledger.recount(group.members)
        return news

    def fail(self, group: BeamGroup, error: str) -> list[tuple[str, TokenDelta]]:
        """End a search that could not be computed; all who wait for an answer are told."""
        leader = group.leader
        for member in group.members:
            self._blocks.forget(member.table)
        self._roster.end(leader, FinishReason.ERROR)
        places = range(group.num_answers)
        return [(leader.client_id, _no_answer(leader, place, error)) for place in places]

    def _take_scores(self, plan: Plan, result: StepResult) -> None:
        sampled, scores = iter(result.token_ids), iter(result.logprobs or ())
        samples = plan.batch.chunks.samples
        for request in (r for r, is_due in zip(plan.requests, samples, strict=True) if is_due):
            token_id, score = next(sampled), next(scores, None)
            if request.beams is None or request.finish_reason is not None:
                continue
            if score is None:
                raise RuntimeError(f"bug: the executor did not score {request}")
            request.beams.scores[request.request_id] = Scored(token_id, score)

    def _advance(
        self, group: BeamGroup, tell_start: TellStart, ended_at: float | None
    ) -> list[TokenDelta]:
        """Extend all beams by a token; returns what the client hears, perhaps nothing."""
        deltas = []
        if group.search.num_tokens == 0:
            deltas.append(tell_start(group.leader))
            deltas[0].prompt_logprobs = _prompt_scores(group.leader)
        scores = [group.scores[carrier.request_id].score for carrier in group.carriers]
        extensions = group.search.advance(scores)
        if group.search.is_over:
            return deltas + self._finish(group, ended_at)
        self._spread(group, extensions)
        group.scores.clear()
        return deltas

    def announce(self, plan: Plan) -> None:
        """Tell the executor of rows that are new, or not what they were; last in a plan."""
        if not self._groups:
            return
        started = {change.row for change in plan.batch.started}
        scheduled = set(plan.batch.chunks.rows)
        for member in (m for g in self._groups for m in g.members if m.row is not None):
            told = member.beams.told.get(member.request_id)  # type: ignore[union-attr]  # it has
            if told is not None:
                self._announce_changes(plan, member, told)
            elif member.row in scheduled:
                if member.row not in started:
                    plan.batch.started.append(describe_row(member))
                member.beams.told[member.request_id] = ToldRow(member.table.block_ids)  # type: ignore[union-attr]

    def _announce_changes(self, plan: Plan, member: Request, told: ToldRow) -> None:
        row, block_ids = member.row, member.table.block_ids
        first_block = first_difference(told.block_ids, block_ids)
        first_token = told.first_changed
        if first_token is not None:
            tokens = member.token_ids[first_token:]
            tail = block_ids[first_block:]
            plan.batch.revised.append(RevisedRow(row, first_token, tokens, first_block, tail))  # type: ignore[arg-type]
        elif first_block < len(block_ids):
            plan.batch.appended.append(AppendedBlocks(row, first_block, block_ids[first_block:]))  # type: ignore[arg-type]
        told.block_ids, told.first_changed = block_ids, None

    def _join(self, group: BeamGroup) -> None:
        """Let those that were held back go on from what the leader has computed by now.

        After a preemption: each has its own tokens, and a part of them in common with the leader.
        """
        leader = group.leader
        for member in group.absent:
            member.table = self._blocks.fork(leader.table, member.num_joint_tokens)
            member.num_computed_tokens = member.num_joint_tokens
            self._roster.join(member)

    def _spread(self, group: BeamGroup, extensions: Sequence[Extension]) -> None:
        """Let members carry the next beams, with their blocks and tokens."""
        parents = [group.carriers[extension.parent] for extension in extensions]
        keepers: dict[str, int] = {}
        for place, parent in enumerate(parents):
            keepers.setdefault(parent.request_id, place)
        carriers = list(parents)
        idle = [member for member in group.members if member.request_id not in keepers]
        idle.sort(key=lambda member: member.row is None)  # rows that are there are used first
        for place, parent in enumerate(parents):
            if keepers[parent.request_id] != place:
                carriers[place] = idle.pop(0)
                self._copy(group, parent, carriers[place])
        if group.leader in idle:  # it stays: the others' place in the queue is behind its own
            self._copy(group, carriers[0], group.leader)
            idle[idle.index(group.leader)], carriers[0] = carriers[0], group.leader
        for member in idle:
            if member.row is not None:
                self._roster.park(member)
                group.told.pop(member.request_id, None)
        group.carriers = carriers
        for carrier, extension in zip(carriers, extensions, strict=True):
            self._append(group, carrier, extension.token_id)

    def _copy(self, group: BeamGroup, parent: Request, child: Request) -> None:
        """Let a member that carries no beam have a parent's tokens and blocks."""
        table = self._blocks.fork(parent.table, parent.num_computed_tokens)
        changed = first_difference(child.token_ids, parent.token_ids)
        child.token_ids[changed:] = parent.token_ids[changed:]
        child.num_computed_tokens = parent.num_computed_tokens
        self._blocks.release(child.table)
        child.table = table
        told = group.told.get(child.request_id)
        if told is not None:
            told.first_changed = changed
        if child.row is None:
            self._roster.join(child)

    def _append(self, group: BeamGroup, carrier: Request, token_id: int) -> None:
        told, scored = (group.told.get(carrier.request_id), group.scores.get(carrier.request_id))
        is_known = scored is not None and scored.sampled_id == token_id
        if told is not None and told.first_changed in (None, len(carrier.token_ids)):
            told.first_changed = None if is_known else len(carrier.token_ids)
        carrier.token_ids.append(token_id)

    def _finish(self, group: BeamGroup, ended_at: float | None) -> list[TokenDelta]:
        """End the search; returns its best continuations, the best first."""
        best, leader = group.search.ended[: group.num_answers], group.leader
        reason = best[0].reason if best else FinishReason.ERROR
        if best:  # what it has generated is what lengths are learnt from
            node = best[0].hypothesis
            del leader.token_ids[leader.num_prompt_tokens :]
            leader.token_ids.extend(step.token_id for step in node.path())
        self._roster.end(leader, reason)
        deltas = [_answer(leader, place, ended) for place, ended in enumerate(best)]
        error = (
            f"The search found {len(best)} answers and not {group.num_answers}: the model holds"
            " all others for impossible. Ask for fewer."
        )
        deltas += [_no_answer(leader, i, error) for i in range(len(best), group.num_answers)]
        if ended_at is not None and leader.first_token_at is not None:
            for delta in deltas:
                delta.decode_seconds = ended_at - leader.first_token_at
        return deltas


def _answer(leader: Request, place: int, ended: Ended) -> TokenDelta:
    path = ended.hypothesis.path()
    scores = [node.score for node in path if node.score is not None]
    return TokenDelta(
        request_id=sequence_id(leader.request_id, place),
        token_ids=[node.token_id for node in path],
        finish_reason=ended.reason,
        logprobs=scores or None,
        prompt_logprobs=_prompt_scores(leader) if place else None,  # the first has them by now
    )


def _no_answer(leader: Request, place: int, error: str) -> TokenDelta:
    return TokenDelta(
        request_id=sequence_id(leader.request_id, place),
        token_ids=[],
        finish_reason=FinishReason.ERROR,
        error=error,
    )


def _prompt_scores(request: Request) -> list[TokenLogprobs] | None:
    """Return the scores of a prompt, where they are wanted."""
    is_wanted = request.sampling.num_prompt_logprobs is not None
    return request.prompt_logprobs if is_wanted else None


def describe_row(request: Request) -> StartedRow:
    """Describe a row that the executor does not have yet."""
    if request.row is None:
        raise RuntimeError(f"bug: {request} is started without a row")
    return StartedRow(
        row=request.row,
        token_ids=request.token_ids.copy(),
        block_ids=request.table.block_ids,
        sampling=request.sampling,
        num_prompt_tokens=request.num_prompt_tokens,
        seed=request.seed,
        grammar=request.grammar,
    )
