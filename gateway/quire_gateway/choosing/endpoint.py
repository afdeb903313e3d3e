"""One engine, as this gateway sees it: what it said last, and what it was sent since.

    free room  =  room in the last state  -  cost of what we sent and the state does not include yet

The state names the highest of our request counters that it includes: up to that number our own
costs are dropped. Requests that have ended since are taken off, so that short ones do not seem to
run until the next state comes.
"""

from collections import Counter
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
    num_prompt_tokens: float
    prefix: int | None
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
        self._prefixes: Counter[int] = Counter()
        """First chunks of the prompts in flight."""
        # sums, for there may be thousands of requests; they are made anew with each state
        self._num_pending, self._pending_blocks, self._pending_tokens = 0, 0.0, 0.0
        self._num_ended, self._ended_blocks = 0, 0.0
        self._figures: Figures | None = None
        self._speeds = KnownSpeeds()

    @property
    def num_in_flight(self) -> int:
        """Requests of ours that are there now."""
        return len(self._sent)

    @property
    def own_load(self) -> OwnLoad:
        """What the state does not include."""
        return OwnLoad(
            num_requests=self._num_pending,
            num_blocks=self._pending_blocks,
            num_prompt_tokens=self._pending_tokens,
            num_ended_requests=self._num_ended,
            num_ended_blocks=self._ended_blocks,
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
        for counter, sent in self._sent.items():
            sent.is_included = counter <= highest
            if not sent.is_included:
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

    def send(
        self,
        counter: int,
        num_blocks: float,
        num_prompt_tokens: float,
        now: float,
        prefix: int | None = None,
    ) -> None:
        """Count a request that goes there now.

        Parameters
        ----------
        prefix
            Name of its prompt's first chunk.
        """
        sent = self._sent[counter] = _Sent(num_blocks, num_prompt_tokens, prefix)
        if prefix is not None:
            self._prefixes[prefix] += 1
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

    def end(self, counter: int) -> None:
        """The request has ended, was refused or given up."""
        sent = self._sent.pop(counter)
        if sent.prefix is not None:
            self._prefixes[sent.prefix] -= 1
            if not self._prefixes[sent.prefix]:
                del self._prefixes[sent.prefix]
        if sent.is_included:
            self._num_ended += 1
            self._ended_blocks += sent.num_blocks
        else:
            self._count(sent, -1)
        self._figures = None

    def shares(self, prefix: int) -> bool:
        """Whether a prompt that begins so is in flight there: its blocks are held anyhow."""
        return prefix in self._prefixes

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

    def _count(self, sent: _Sent, times: int) -> None:
        self._num_pending += times
        self._pending_blocks += times * sent.num_blocks
        self._pending_tokens += times * sent.num_prompt_tokens
