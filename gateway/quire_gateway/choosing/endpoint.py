"""One engine, as this gateway sees it: what it said last, and what it was sent since.

    free room  =  room in the last state  -  cost of what we sent and the state does not include yet

The state names the highest of our request counters that it includes: up to that number our own
costs are dropped. Requests that have ended since are taken off, so that short ones do not seem to
run until the next state comes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import inf

from quire_engine.protocol.state import EngineState
from quire_gateway.choosing.demand import Demand
from quire_gateway.choosing.figures import Figures, KnownSpeeds, OwnLoad, compute_figures
from quire_gateway.choosing.shares import Lean

SLOW_START_SECONDS = 10.0
"""An engine that has just come is given its share little by little."""
_SLOW_START_PENALTY = 2.0
_FIRST_EJECTION_SECONDS = 1.0
_LONGEST_EJECTION_SECONDS = 30.0
_FAILURES_TO_EJECT = 2
_TRIAL_SECONDS = 5.0
"""Who comes back gets one request more at a time for each so long, until one was answered."""


@dataclass(slots=True)
class _Sent:
    num_blocks: float
    """Beyond those that it shares."""
    num_shared_blocks: float
    prompt_blocks: float
    variance: float
    num_prompt_tokens: float
    chunks: tuple[int, ...]
    is_included: bool = False
    """Whether the engine's state counts it."""


class Endpoint:
    """State, own load and health of one engine; time comes in as an argument.

    Parameters
    ----------
    gateway
        This gateway's name, under which engines report its counters.
    slot
        Its place in the prefix index.
    """

    def __init__(self, address: str, *, accelerator: str, gateway: str, slot: int) -> None:
        self.address = address
        self.accelerator = accelerator
        self.slot = slot
        self.seed = int.from_bytes(blake2b(address.encode(), digest_size=8).digest())
        """Of its rank for a prefix: the same in all gateways."""
        self.lean = Lean()
        """Of its accelerator."""
        self.is_leaving = False
        """Whether it ends: it gets no new requests."""
        self.state: EngineState | None = None
        self.heard_at = 0.0
        self.ready_since = 0.0
        self.busy_until = 0.0
        """When the prompts that are there now will be through: its queue is that less the time."""
        self.num_failures = 0
        """One after the other, without a success between."""
        self.ejected_until = 0.0
        self.refused_blocks = inf
        """It refused a request of this size since its last news: larger ones need not try."""
        self._gateway = gateway
        self._sent: dict[int, _Sent] = {}
        self._in_flight: dict[int, int] = {}
        """Chunks of the prompts in flight."""
        self._held: dict[int, int] = {}
        """Of those that the state counts: their blocks are held there."""
        # sums, for there may be thousands of requests; they are made anew with each state
        self._num_pending, self._pending_blocks, self._pending_tokens = 0, 0.0, 0.0
        self._pending_variance = self._left_blocks = 0.0
        self._num_ended, self._ended_blocks = 0, 0.0
        self._figures: Figures | None = None
        self._speeds = KnownSpeeds()

    @property
    def num_in_flight(self) -> int:
        """Requests of ours that are there now."""
        return len(self._sent)

    @property
    def has_prefix_cache(self) -> bool:
        """Whether a prompt finds there what others that begin alike have computed."""
        return self.state is not None and self.state.has_prefix_cache

    @property
    def own_load(self) -> OwnLoad:
        """What the state does not include."""
        return OwnLoad(
            num_requests=self._num_pending,
            num_blocks=self._pending_blocks,
            variance=self._pending_variance,
            num_prompt_tokens=self._pending_tokens,
            num_ended_requests=self._num_ended,
            num_ended_blocks=self._ended_blocks,
            num_left_blocks=self._left_blocks,
        )

    @property
    def figures(self) -> Figures | None:
        """Its figures now; None before it has said anything, and while its model is on the way."""
        if self._figures is None and self.state is not None and self.state.tokens_per_block > 0:
            self._figures = compute_figures(self.state, self.own_load, self._speeds)
        return self._figures

    def hear(self, state: EngineState, now: float) -> None:
        """Take what it says of itself."""
        if self.state is None or not self.state.is_ready:
            self.ready_since = now
        self.state = state
        self.beat(now)
        highest = state.gateways.get(self._gateway, 0)
        self._num_pending, self._pending_blocks, self._pending_tokens = 0, 0.0, 0.0
        self._pending_variance = self._left_blocks = 0.0
        self._held.clear()
        for counter, sent in self._sent.items():
            sent.is_included = counter <= highest
            if sent.is_included:
                _count_in(self._held, sent.chunks)
                self._left_blocks += sent.num_blocks
            else:
                self._count(sent, 1)
        self._num_ended, self._ended_blocks = 0, 0.0
        self._figures = None
        figures = self.figures
        self.busy_until = now if figures is None else now + figures.queue_seconds

    def beat(self, now: float) -> None:
        """It lives, and nothing has changed."""
        self.heard_at = now
        self.refused_blocks = inf

    def lose(self) -> None:
        """Its state is not heard any more."""
        self.state = None
        self._figures = None

    def take(
        self, counter: int, demand: Demand, num_hits: int, num_uncached: float, now: float
    ) -> float:
        """Count a request that goes there now; returns the blocks that it takes there.

        Parameters
        ----------
        num_hits
            Chunks of its prompt that are cached there.
        num_uncached
            Tokens of it that are not.
        """
        figures = self.figures
        chunks = demand.chunks if self.has_prefix_cache else ()
        if figures is None:
            self.send(counter, 0.0, num_uncached, now, chunks=chunks)
            return 0.0
        size = figures.block_size
        num_blocks, deviation = demand.blocks_and_deviation(size)
        num_shared = count_shared(demand, self, num_hits, size)
        self.send(
            counter,
            num_blocks - num_shared,
            num_uncached,
            now,
            chunks=chunks,
            num_shared_blocks=num_shared,
            prompt_blocks=demand.num_prompt_tokens / size,
            deviation=deviation * (num_blocks - num_shared) / max(num_blocks, 1.0),
        )
        return num_blocks - num_shared

    def send(
        self,
        counter: int,
        num_blocks: float,
        num_prompt_tokens: float,
        now: float,
        *,
        chunks: tuple[int, ...] = (),
        num_shared_blocks: float = 0.0,
        prompt_blocks: float = 0.0,
        deviation: float = 0.0,
    ) -> None:
        """Count a request that goes there now.

        Parameters
        ----------
        num_blocks
            What it takes beyond `num_shared_blocks`, which others hold there.
        num_prompt_tokens
            Of them, those that are computed.
        chunks
            Names of its prompt's parts, where it may share them.
        prompt_blocks
            All of its prompt's.
        deviation
            Of its blocks; see `Expectations.peak_blocks`.
        """
        sent = self._sent[counter] = _Sent(
            num_blocks,
            num_shared_blocks,
            prompt_blocks,
            deviation * deviation,
            num_prompt_tokens,
            chunks,
        )
        _count_in(self._in_flight, chunks)
        if (figures := self.figures) is not None:
            seconds = num_prompt_tokens * figures.seconds_per_prompt_token
            self.busy_until = max(self.busy_until, now) + seconds
        self._count(sent, 1)
        self._figures = None

    def predict_first_byte(
        self, demand: Demand, num_uncached: float, now: float, *, is_stream: bool
    ) -> float:
        """Return the seconds until it begins to answer: a whole answer with its last token."""
        figures = self.figures
        if figures is None:
            return inf
        seconds = max(self.busy_until - now, 0.0)
        seconds += num_uncached * figures.seconds_per_prompt_token
        if not is_stream:
            seconds += demand.num_sequences * demand.max_tokens * figures.seconds_per_output_token
        return seconds

    def end(self, counter: int, *, gives_back: bool = True) -> None:
        """The request has ended, was refused or given up.

        Parameters
        ----------
        gives_back
            Whether the engine has now what its state says that it holds for it. What was refused
            held nothing, though the state counts it among those that came; of a client that has
            left the engine hears later.
        """
        sent = self._sent.pop(counter)
        _count_off(self._in_flight, sent.chunks)
        if sent.is_included:
            _count_off(self._held, sent.chunks)
            if gives_back:
                self._left_blocks -= sent.num_blocks
                self._num_ended += 1
                self._ended_blocks += self._given_back(sent)
        else:
            self._count(sent, -1)
        self._figures = None

    def is_sent(self, prefix: int) -> bool:
        """Whether a prompt that begins so is in flight there."""
        return prefix in self._in_flight

    def num_held(self, chunks: Sequence[int], most: int) -> int:
        """Return how many of a prompt's chunks others hold there, `most` of which it has cached.

        Only by what the state counts: one that is still on its way there has no blocks yet.
        """
        return _count_known(self._held, chunks, most)

    def refuse(self, num_blocks: float) -> None:
        """It had no room for a request of this size."""
        self.refused_blocks = min(self.refused_blocks, num_blocks)

    def succeed(self) -> None:
        """It answered as it should."""
        self.num_failures = 0

    def fail(self, now: float) -> None:
        """It did not answer, or not as it should; if that goes on, it gets nothing for a while.

        What fails while it is left alone anyhow went there before: all that an engine had when it
        died fails at once, and that is one failure more, not fifty.
        """
        if now < self.ejected_until:
            return
        self.num_failures += 1
        if self.num_failures >= _FAILURES_TO_EJECT:
            doublings = min(self.num_failures - _FAILURES_TO_EJECT, 10)
            seconds = min(_FIRST_EJECTION_SECONDS * 2**doublings, _LONGEST_EJECTION_SECONDS)
            self.ejected_until = now + seconds
            self.ready_since = self.ejected_until

    def is_live(self, now: float, stale_seconds: float) -> bool:
        """Whether it says that it takes requests, and was heard just now."""
        state = self.state
        return (
            state is not None
            and state.is_ready
            and state.tokens_per_block > 0
            and not state.is_draining
            and not self.is_leaving
            and now - self.heard_at < stale_seconds
        )

    def is_eligible(self, now: float, stale_seconds: float) -> bool:
        """Whether requests may be sent there."""
        return (
            now >= self.ejected_until
            and (self.num_failures < _FAILURES_TO_EJECT or self._is_tried(now))
            and self.is_live(now, stale_seconds)
        )

    def penalty(self, now: float) -> float:
        """Return by what its predicted time is multiplied: above 1 while it starts slowly."""
        begun = (now - self.ready_since) / SLOW_START_SECONDS
        return 1.0 + _SLOW_START_PENALTY * (1.0 - begun) if begun < 1.0 else 1.0

    def _is_tried(self, now: float) -> bool:
        """Whether, after it was ejected, it may have one request more."""
        return len(self._sent) <= (now - self.ejected_until) / _TRIAL_SECONDS

    def _given_back(self, sent: _Sent) -> float:
        """Blocks that are free with its end: what others share with it stays."""
        own = sent.num_blocks + sent.num_shared_blocks
        num_shared = _count_known(self._in_flight, sent.chunks, len(sent.chunks))
        if not num_shared:
            return own
        return max(own - sent.prompt_blocks * num_shared / len(sent.chunks), 0.0)

    def _count(self, sent: _Sent, times: int) -> None:
        self._num_pending += times
        self._pending_blocks += times * sent.num_blocks
        self._pending_variance += times * sent.variance
        self._pending_tokens += times * sent.num_prompt_tokens


def _count_in(counts: dict[int, int], names: tuple[int, ...]) -> None:
    """Count each of them once more."""
    for name in names:
        counts[name] = counts.get(name, 0) + 1


def _count_off(counts: dict[int, int], names: tuple[int, ...]) -> None:
    """Count each of them once less."""
    for name in names:
        number = counts[name] - 1
        if number:
            counts[name] = number
        else:
            del counts[name]


def _count_known(known: Mapping[int, int], chunks: Sequence[int], most: int) -> int:
    """Return how many of the first chunks are known, at most so many."""
    if not known or not most or chunks[0] not in known:
        return 0
    low, high = 1, most  # a chunk's name stands for all before it, too
    while low < high:
        middle = (low + high + 1) // 2
        if chunks[middle - 1] in known:
            low = middle
        else:
            high = middle - 1
    return low


def count_shared(demand: Demand, endpoint: Endpoint, num_hits: int, block_size: int) -> int:
    """Return how many of its blocks a request would share with those that are in flight there.

    What is cached and in no one's use saves seconds, and no room.
    """
    num_held = endpoint.num_held(demand.chunks, num_hits)
    if not num_held:
        return 0
    return int(num_held / len(demand.chunks) * demand.num_prompt_tokens) // block_size
