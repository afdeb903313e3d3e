"""Beams as requests: each beam of a search is a sequence with a row and a block table of its own.

    leader     waits for room and computes the prompt like any request
    followers  are held back until the prompt is there, and go on from it on shared blocks

They are let in, preempted and ended together, and all rows are theirs from the leader's start on:
two searches can never wait for each other's. A beam that dies gives its blocks back at once, and
its request carries another beam on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from quire_engine.kvcache.manager import BlockManager
from quire_engine.protocol.beams import most_blocks
from quire_engine.protocol.sampling import TokenLogprobs
from quire_engine.scheduler.beam_search import BeamSearch
from quire_engine.scheduler.request import Request


@dataclass(slots=True)
class ToldRow:
    """What the executor knows of a row."""

    block_ids: list[int]
    first_changed: int | None = None
    """Position of the first token that is another one by now."""


@dataclass(frozen=True, slots=True)
class Scored:
    """What a step said of the token after a beam."""

    sampled_id: int
    """What the executor took it for, and has put behind its row's tokens."""
    score: TokenLogprobs


@dataclass(eq=False, slots=True)
class BeamGroup:
    """The requests of one search."""

    search: BeamSearch
    members: Sequence[Request]
    """As many as beams can be; the first leads."""
    num_answers: int
    carriers: list[Request] = field(default_factory=list)
    """Who carries each of the search's beams, in their order."""
    scores: dict[str, Scored] = field(default_factory=dict)
    """By the request: what is known of its next token; a step for all needs that of all."""
    spare_rows: list[int] = field(default_factory=list)
    """The executor's rows that are kept for members without one."""
    told: dict[str, ToldRow] = field(default_factory=dict)
    """By the request: its row as the executor has it, once it is started there."""

    def __post_init__(self) -> None:
        self.carriers = [self.leader]
        for member in self.members:
            member.beams = self
        for follower in self.members[1:]:
            follower.leader = self.leader

    @property
    def leader(self) -> Request:
        """The request that the others follow."""
        return self.members[0]

    @property
    def width(self) -> int:
        """Rows that it takes."""
        return len(self.members)

    @property
    def is_complete(self) -> bool:
        """Whether every beam's next token can be chosen."""
        return all(carrier.request_id in self.scores for carrier in self.carriers)

    @property
    def absent(self) -> list[Request]:
        """Members without a row that will have a beam to carry, if there are enough."""
        is_begun = self.search.num_tokens > 0
        return [m for m in (self.carriers if is_begun else self.members) if m.row is None]

    def withdraw(self) -> list[int]:
        """Forget what its steps have brought so far; returns the rows that were kept."""
        self.scores.clear()
        rows, self.spare_rows = self.spare_rows, []
        for follower in self.members[1:]:
            joint = first_difference(self.leader.token_ids, follower.token_ids)
            follower.num_joint_tokens = min(joint, len(follower.token_ids) - 1)
        return rows


def check_fits(group: BeamGroup | None, blocks: BlockManager, *, max_num_seqs: int) -> None:
    """Refuse a search, if it is one, that could need more than there is, even alone.

    Raises
    ------
    ValueError
        More beams than rows, or than there are blocks for.
    """
    if group is None:
        return
    if group.width > max_num_seqs:
        raise ValueError(f"{group.width} beams are more than the {max_num_seqs} that can run")
    needed = most_blocks(
        num_prompt_tokens=group.leader.num_prompt_tokens,
        max_length=group.leader.max_length,
        width=group.width,
        block_size=blocks.block_size,
    )
    if needed > blocks.pool.num_total:
        raise ValueError(
            f"{group.width} beams of {group.leader.max_length} tokens never fit the KV cache"
        )


def first_difference(ours: Sequence[int], others: Sequence[int]) -> int:
    """Return the first position where two sequences differ, or the length of the shorter one.

    By halves: comparing slices is much faster than comparing one by one.
    """
    low, high = 0, min(len(ours), len(others))
    if ours[:high] == others[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if ours[low:middle] == others[low:middle]:
            low = middle
        else:
            high = middle
    return low
