"""Messages between an API server process and the core process (ZeroMQ, msgpack by msgspec).

    API server                                    core
      Hello(client_id, output_address)  ─────────►  connects its output socket
      Goodbye(client_id)                ─────────►  ends its requests, closes that socket
      AddRequest, AbortRequests, Drain  ─────────►  input thread, then the step loop
                                        ◄─────────  CoreReady, StepOutputs, CoreStats, CoreFailed

Inputs travel over one ROUTER/DEALER pair; outputs over one PUSH/PULL pair per API server, so
that the step loop's thread alone writes them. A message of an unknown type is a decode error.
"""

from enum import IntEnum, StrEnum

import msgspec

from quire_engine.profiles.engine_profile import CalibrationReport
from quire_engine.profiles.output_length import SketchState
from quire_engine.profiles.step_time import StepTimeModel
from quire_engine.protocol.beams import BeamParams
from quire_engine.protocol.block_map import BlockMap, RequestView
from quire_engine.protocol.grammar import Grammar
from quire_engine.protocol.histogram import HistogramCounts
from quire_engine.protocol.sampling import SamplingParams, TokenLogprobs


class Priority(IntEnum):
    """Who goes first; lower is more urgent."""

    INTERACTIVE = 0
    BACKGROUND = 1


class FinishReason(StrEnum):
    """Why a request ended."""

    STOP = "stop"
    """An end token or a stop token was generated, or the request's grammar has nothing to come."""
    LENGTH = "length"
    """max_tokens or the model's length was reached."""
    ABORT = "abort"
    """The client left, or the API server found a stop string."""
    REFUSED = "refused"
    """There was no room in time; `TokenDelta.retry_after_seconds` says when to ask again."""
    ERROR = "error"
    """The engine could not go on with this request; `TokenDelta.error` says why."""


class ErrorDirection(StrEnum):
    """Which way a prediction was wrong."""

    OVER = "over"
    """More was expected than came, or just that."""
    UNDER = "under"


class StepKind(StrEnum):
    """What a step computes."""

    DECODE = "decode"
    PREFILL = "prefill"
    MIXED = "mixed"


class Message(msgspec.Struct, tag=True, kw_only=True):
    """Base of every message: msgspec tells them apart by the class's name."""


class Hello(Message):
    """The first message of an API server: where the core sends its outputs."""

    client_id: str
    output_address: str
    hears_news: bool = True
    """Whether it gets statistics, profiles and prefix events beside what its requests bring."""


class Goodbye(Message):
    """An API server is gone; told by whoever watches over it."""

    client_id: str


class AddRequest(Message):
    """One checked request. Ids are unique over all API servers and restarts."""

    client_id: str
    request_id: str
    prompt_token_ids: list[int]
    sampling: SamplingParams
    priority: Priority = Priority.INTERACTIVE
    starts_now: bool = False
    """Refuse the request rather than let it wait for room."""
    holds_room: bool = False
    """Room is kept for it: while it waits, none that is ordered behind it starts."""
    deadline_seconds: float | None = None
    """The first token is due within this time of arrival; None takes the engine's own limits."""
    cache_salt: str = ""
    """Requests share cached prefixes only with equal salts."""
    prefix_chunks: list[str] = []
    """Names that a gateway gave the prompt's parts, in order; see `PrefixChunks`."""
    gateway: str = ""
    """Which gateway sent it; empty if none did."""
    gateway_counter: int = 0
    """The gateway's own number of the request, rising."""
    beams: BeamParams | None = None
    """Search for the sequences together, rather than sample each: they are the best that were
    found, the best first, and each comes whole."""
    num_sequences: int = 1
    """Continuations of the prompt, at least 1: requests of their own on shared blocks of it, with
    the ids that `sequence_id` names, and with seeds that count up from the request's."""
    grammar: Grammar | None = None
    """What its outputs have to look like: known to compile, and to be fast enough."""


def sequence_id(request_id: str, index: int) -> str:
    """Name one of a request's sequences; the first has the request's own id."""
    return f"{request_id}.{index}" if index else request_id


class UseVocabulary(Message):
    """What tokens stand for: sent before the first request with a grammar."""

    vocabulary: bytes
    """A `Vocabulary` as msgpack."""


class AbortRequests(Message):
    """End these requests and free their blocks within one step; unknown ids are ignored."""

    request_ids: list[str]


class Shutdown(Message):
    """End the core process after the current step; requests still running end with an error."""


class TokenDelta(msgspec.Struct, kw_only=True, omit_defaults=True, array_like=True):
    """What one step brought one request."""

    request_id: str
    token_ids: list[int]
    finish_reason: FinishReason | None = None
    num_cached_tokens: int = 0
    """Prompt tokens whose KV was found in the prefix cache."""
    error: str | None = None
    retry_after_seconds: float | None = None
    queue_seconds: float | None = None
    """With the first token: how long the request waited for its first start."""
    logprobs: list[TokenLogprobs] | None = None
    """Scores of `token_ids`, if the request wants any."""
    prompt_logprobs: list[TokenLogprobs] | None = None
    """With the first token, if wanted: scores of the prompt's tokens from the second on."""
    embedding: bytes | None = None
    """Of a prompt that is pooled, with its end: little-endian 4-byte floats."""
    prefill_seconds: float | None = None
    """With the first token: how long it took from that start."""
    decode_seconds: float | None = None
    """With the last token: how long it took from the first."""


class StepOutputs(Message):
    """All deltas of one step for one API server."""

    deltas: list[TokenDelta]


class ModelFacts(msgspec.Struct, kw_only=True, frozen=True):
    """What the API server must know of the loaded model to check requests."""

    max_model_len: int
    vocab_size: int
    num_blocks: int
    block_size: int
    embedding_size: int | None = None
    """Values of a prompt's embedding; None where whatever computes makes none."""
    refused_parameters: tuple[str, ...] = ()
    """Parameters of `SamplingParams` that whatever computes cannot heed."""


class CoreReady(Message):
    """The model is loaded and the step loop runs."""

    facts: ModelFacts


class CoreFailed(Message):
    """The core could not start; the message is for the user. The process exits after it."""

    error: str


class LoadProgress(Message):
    """How far loading has come, for people who wait."""

    stage: str
    fraction: float


class BlockCounts(msgspec.Struct, kw_only=True, frozen=True):
    """Exact counts of KV blocks; total = held + free, cached is a part of free."""

    total: int
    """Blocks that requests can use: the null block is not counted."""
    held: int
    free: int
    cached: int
    reserved: int
    """Peak of the predicted occupancy, at least `held`."""
    queued: int
    """Blocks that waiting requests will ask for; nothing is reserved for them."""
    yielding: int = 0
    """The part of `reserved` that background requests give up to interactive ones at once."""


class SequencesByPriority(msgspec.Struct, kw_only=True, frozen=True):
    """Requests of one class, as they came in (ageing does not count them elsewhere)."""

    running: int
    waiting: int


class Pressure(msgspec.Struct, kw_only=True, frozen=True):
    """How near the engine is to refusing: 1 is the edge. The largest term is what binds."""

    blocks: float
    """reserved / (admission ceiling x total)."""
    seats: float
    """running / max_num_seqs."""
    first_token: float
    """Predicted time to the first token / its objective; 0 without one."""
    step: float
    """Predicted decode step / the objective per output token; 0 without one."""

    @property
    def value(self) -> float:
        """The binding term's value."""
        return max(self.blocks, self.seats, self.first_token, self.step)

    @property
    def binding(self) -> str:
        """The name of the largest term."""
        return max(self.__struct_fields__, key=lambda name: getattr(self, name))


class Thresholds(msgspec.Struct, kw_only=True, frozen=True):
    """Limits of admission in force; they may change while the engine runs."""

    admission: float
    """Share of the blocks up to which interactive requests are admitted."""
    background: float
    """The same for background requests."""
    slo_time_to_first_token_seconds: float | None = None
    """Promised to interactive requests; what cannot keep it is refused. null: no promise."""
    slo_time_per_output_token_seconds: float | None = None
    """Promised pace of tokens after the first one; null: none."""
    max_queue_seconds: float
    """Longest wait for room."""
    max_waiting_requests: int
    """Most requests that wait."""


class CoreStats(Message):
    """The core's gauges and running totals since it started, sent on a timer and on change."""

    blocks: BlockCounts
    num_running: int
    num_waiting: int
    num_filled_tokens: int
    """Tokens whose KV is in held blocks; held x block_size less this is fragmentation."""
    num_steps: int
    num_preemptions: int
    num_recomputed_tokens: int
    num_prefix_queries: int
    """Prompt tokens looked up in the prefix index."""
    num_prefix_hits: int
    """Prompt tokens found there."""
    num_evictions: int
    num_scheduled_tokens: int
    num_prompt_tokens_ahead: int = 0
    """Prompt tokens that are still to be computed, of requests that run or wait."""
    num_displacements: int = 0
    """The preemptions of background requests that made room for interactive ones."""
    num_overshoot_blocks: int = 0
    """Blocks that are reserved beyond the admission ceiling, by re-costing."""
    decisions: dict[str, int] = {}
    """Admission decisions since the start: accepted, and each reason of refusal."""
    by_priority: dict[str, SequencesByPriority] = {}
    pressure: Pressure | None = None
    gateway_counters: dict[str, int] = {}
    """The highest `AddRequest.gateway_counter` that these figures include, by gateway."""
    num_freed_blocks: int = 0
    """Blocks that their last holder gave back."""
    num_graph_hits: int = 0
    """Decode steps that ran as a captured graph, where there are graphs."""
    num_graph_misses: int = 0
    histograms: dict[str, HistogramCounts] = {}
    """By the metric's name and, for those with one, its label: see `metric_names.keyed`."""
    num_audits: int = 0
    """Checks of all accounts that were made while idle; one that fails ends the process."""


class PrefixChunks(Message):
    """Prefixes that came into the cache, and that left it, since the last such message."""

    first_number: int
    """Events are numbered from 0 on; a reader that expected a smaller number has missed some."""
    events: list[tuple[bool, str]]
    """(came in rather than left, the chunk's name), in order."""


class SetThresholds(Message):
    """Put other limits in force, from the next decision on; nothing that runs is touched."""

    thresholds: Thresholds


class CoreProfile(Message):
    """What the core has learnt, for those who predict it; sent now and then."""

    lengths: SketchState
    """Lengths of outputs seen so far."""
    step_time: StepTimeModel | None
    """None until enough steps were seen."""
    z: float
    """Standard deviations that reservations keep from the predicted mean."""
    thresholds: Thresholds
    calibration: CalibrationReport | None = None
    """What was measured before the engine served; None where nothing is."""


class WatchCore(Message):
    """Send views of the core to this API server, or no more; what is computed only for them."""

    client_id: str
    is_on: bool


class CoreView(Message):
    """Who holds which block and what every request does; sent only while somebody watches."""

    seconds: float
    """When, by the core's clock."""
    executor: str
    """What computes, in words."""
    blocks: BlockCounts
    map: BlockMap
    requests: list[RequestView]
    """Those that run, then those that wait, each by seniority; the first few hundred."""
    num_running: int
    num_waiting: int
    num_prefill_tokens: int
    num_decode_tokens: int
    num_prefix_queries: int
    num_prefix_hits: int
    busy_seconds: float = 0.0
    """Time spent in steps since the first view."""
    num_steps: int = 0
    """Steps since the first view."""


ToCore = (
    Hello
    | Goodbye
    | AddRequest
    | AbortRequests
    | SetThresholds
    | UseVocabulary
    | WatchCore
    | Shutdown
)
FromCore = (
    StepOutputs
    | CoreReady
    | CoreFailed
    | LoadProgress
    | CoreStats
    | CoreProfile
    | CoreView
    | PrefixChunks
)
