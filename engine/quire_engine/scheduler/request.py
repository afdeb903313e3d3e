"""A request as the scheduler sees it."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quire_engine.execution.base import OutputGrammar
from quire_engine.kvcache.table import BlockTable
from quire_engine.protocol.cost import NOTHING
from quire_engine.protocol.messages import FinishReason, Priority
from quire_engine.protocol.sampling import SamplingParams, TokenLogprobs

if TYPE_CHECKING:
    from quire_engine.scheduler.beams import BeamGroup

Seniority = tuple[int, float, int]
"""(class, arrival in seconds, number of arrival): the smaller goes first, in every queue."""


class Request:
    """Tokens, blocks and progress of one sequence.

        token_ids   [ prompt ............ | generated ...... ]
        KV          [ computed ................ | missing .. ]

    A decode is the special case of exactly one missing token, the newest.
    """

    __slots__ = (
        "beams",
        "client_id",
        "deadline",
        "expected_first_token",
        "finish_reason",
        "first_token_at",
        "followers",
        "grammar",
        "holds_room",
        "leader",
        "length_number",
        "looks_at_tokens",
        "max_length",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_expected_blocks",
        "num_joint_tokens",
        "num_lost_tokens",
        "num_preemptions",
        "num_prompt_tokens",
        "num_times_passed",
        "occupancy",
        "pooled_states",
        "predicted_first_token",
        "priority",
        "progress_to_preempt",
        "prompt_logprobs",
        "queue_seconds",
        "request_id",
        "row",
        "sampling",
        "seed",
        "seniority",
        "stop_token_ids",
        "table",
        "token_ids",
    )

    def __init__(
        self,
        *,
        request_id: str,
        client_id: str,
        prompt_token_ids: list[int],
        sampling: SamplingParams,
        priority: Priority,
        seniority: Seniority,
        seed: int,
        max_length: int,
        table: BlockTable,
        grammar: OutputGrammar | None = None,
    ) -> None:
        self.request_id = request_id
        self.client_id = client_id
        self.token_ids = list(prompt_token_ids)
        self.num_prompt_tokens = len(prompt_token_ids)
        self.sampling = sampling
        self.stop_token_ids = frozenset(sampling.stop_token_ids)
        self.priority = priority
        self.seniority = seniority
        self.seed = seed
        self.grammar = grammar
        """What its output has to look like; kept through preemptions."""
        self.looks_at_tokens = grammar is not None or sampling.needs_host
        """Whether a step that it is in has to be taken in before the next one is planned."""
        self.max_length = max_length
        """Most tokens, prompt included."""
        self.table = table
        self.row: int | None = None
        """The executor's row while running; None while waiting."""
        self.num_computed_tokens = 0
        self.num_cached_tokens = 0
        """Prompt tokens that the prefix cache gave, at the first start."""
        self.num_preemptions = 0
        self.num_lost_tokens = 0
        """Computed before the last preemption; until the request comes back."""
        self.progress_to_preempt = 0
        """Not preempted again before it has this many tokens, as long as there is another."""
        self.num_times_passed = 0
        """How often younger requests started while this one did not fit."""
        self.holds_room = False
        """While it waits, none that is ordered behind it starts."""
        self.queue_seconds: float | None = None
        """From arrival to the first start."""
        self.num_expected_blocks = 0.0
        """Most that it was expected to hold, at its first start."""
        self.first_token_at: float | None = None
        """When its first token was there, in seconds of the scheduler's clock."""
        self.occupancy = NOTHING
        """As the ledger counts it while it waits."""
        self.length_number = 0
        """Which one it is among those whose lengths are learnt, from its first start on."""
        self.deadline: float | None = None
        """When the first token is due, in seconds of the scheduler's clock."""
        self.predicted_first_token: float | None = None
        """When the first token was expected on arrival; teaches the next prediction."""
        self.expected_first_token: float | None = None
        """When it was expected, had it started at the last look at those that wait."""
        self.finish_reason: FinishReason | None = None
        self.leader: Request | None = None
        """The request whose prompt it has too, and whose blocks of it, if it can."""
        self.followers: list[Request] = []
        """Requests that are held back until this one's prompt is computed."""
        self.prompt_logprobs: list[TokenLogprobs] = []
        """Scores of the prompt's tokens from the second on, as far as they are known."""
        self.beams: BeamGroup | None = None
        """The search that it carries a beam of."""
        self.num_joint_tokens = 0
        """Of a beam that comes back after a preemption: those that are its leader's too."""
        self.pooled_states: NDArray[np.float64] | None = None
        """Of the prompt so far, where it is to be pooled; see `embeddings`."""

    @property
    def num_rows(self) -> int:
        """Rows that its start takes: a leader's are its followers' as well."""
        return self.beams.width if self.beams is not None else 1

    @property
    def num_missing_tokens(self) -> int:
        """Known tokens whose KV is not computed yet."""
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def num_generated(self) -> int:
        """Tokens generated so far."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def level(self) -> Priority:
        """The class it is ordered in: a background request may age into an interactive one."""
        return Priority(self.seniority[0])

    @property
    def has_aged(self) -> bool:
        """Whether it is a background request that is ordered as an interactive one."""
        return self.seniority[0] != self.priority

    @property
    def chunk_order(self) -> Seniority:
        """Its place among running prompts: ageing brings a start, but no chunks before others'."""
        return (int(self.priority), *self.seniority[1:])

    @property
    def may_stop(self) -> bool:
        """Whether a stop token ends it: it has generated more than its minimum."""
        return len(self.token_ids) - self.num_prompt_tokens > self.sampling.min_tokens

    @property
    def shares_prompt(self) -> bool:
        """Whether it is to start with its leader's blocks: one that came back has its own."""
        return self.leader is not None and self.num_preemptions == 0

    @property
    def needs_whole_prompt(self) -> bool:
        """Whether no token of its prompt may be taken from the cache."""
        return self.lacks_prompt_scores or self.sampling.pooling == "mean"

    @property
    def lacks_prompt_scores(self) -> bool:
        """Whether all of its prompt is to be computed, for tokens found in a cache get no score."""
        return (
            self.sampling.num_prompt_logprobs is not None
            and len(self.prompt_logprobs) < self.num_prompt_tokens - 1
        )

    @property
    def is_decoding(self) -> bool:
        """Whether only the newest token is missing."""
        return self.num_computed_tokens == len(self.token_ids) - 1

    def __repr__(self) -> str:
        return (
            f"Request({self.request_id}, {self.num_computed_tokens}/{len(self.token_ids)} computed,"
            f" row={self.row}, blocks={len(self.table.blocks)})"
        )
