"""The engine's core: requests in, tokens out, one step at a time."""

import random
from collections.abc import Callable, Iterable
from threading import Lock

from quire_engine.config import EngineConfig
from quire_engine.core.beam_requests import Speller, beam_sampling, check_beams, make_group
from quire_engine.core.gateway_counters import GatewayCounters
from quire_engine.core.grammars import GrammarCache
from quire_engine.core.in_flight import EndedStep, StepsInFlight
from quire_engine.core.isolation import StepOutcome
from quire_engine.core.limits import deadline_of, thresholds_of
from quire_engine.core.prefix_chunks import PrefixChunkWatch
from quire_engine.core.step_stats import StepStats
from quire_engine.core.turns import ReturnTurns, predict_turn
from quire_engine.core.view import describe_core
from quire_engine.errors import RequestError
from quire_engine.execution.base import Executor
from quire_engine.grammar.matching import GrammarState
from quire_engine.kvcache.manager import BlockManager
from quire_engine.profiles.engine_profile import Calibration
from quire_engine.profiles.step_time_fit import StepTimeFitter
from quire_engine.protocol import metric_names as names
from quire_engine.protocol.messages import (
    AddRequest,
    BlockCounts,
    CoreProfile,
    CoreStats,
    CoreView,
    ModelFacts,
    PrefixChunks,
    Thresholds,
    TokenDelta,
    sequence_id,
)
from quire_engine.protocol.sampling import SamplingParams
from quire_engine.scheduler.admission import Refusal, describe_refusal
from quire_engine.scheduler.pace import Pace
from quire_engine.scheduler.plan import Plan
from quire_engine.scheduler.request import Request
from quire_engine.scheduler.scheduler import Scheduler
from quire_engine.tokenizing.tokenizer import Tokenizer

ClientDelta = tuple[str, TokenDelta]
"""(client id, what one of its requests got)."""


class EngineCore:
    """Scheduler, blocks and executor of one model.

    One thread steps; others may add requests meanwhile: a lock is held while a step is planned
    and while its result is taken in, not while it computes. See `in_flight` for what overlaps.

    Parameters
    ----------
    executor
        Loaded, its cache allocated.
    facts
        What `executor.allocate_cache` returned.
    random_source
        Draws the prefix hashes' secret, and the seeds of requests that bring none unless one is
        configured.
    clock
        Measures the executor's runs, in seconds; None where their time is known already.
    step_clock
        The clock that `step` is given the time of: tells when steps end. None in virtual time.
    load_tokenizer
        Called once, when a beam search has stop texts for the first time; without it they are
        refused.
    calibration
        What was measured before; only with a clock, which goes on from there.
    """

    def __init__(
        self,
        config: EngineConfig,
        executor: Executor,
        facts: ModelFacts,
        *,
        random_source: random.Random | None = None,
        clock: Callable[[], float] | None = None,
        step_clock: Callable[[], float] | None = None,
        load_tokenizer: Callable[[], Tokenizer] | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        self._speller = Speller(load_tokenizer)
        self._lock = Lock()
        self._step_stats = StepStats()
        step_time = calibration.step_time if calibration else executor.step_time
        self._calibration = calibration.report if calibration else None
        self._step_times = StepTimeFitter(step_time) if clock else None
        self._random = random_source or random.SystemRandom()
        seed = config.executor.seed
        self._seeds = self._random if seed is None else random.Random(seed)
        self._executor = executor
        self.in_flight = StepsInFlight(
            executor, overlaps=config.executor.overlap, clock=clock, step_clock=step_clock
        )
        self.facts = facts
        self.num_steps = 0
        self._num_added = 0
        self._num_audits = 0
        self._gateways = GatewayCounters()
        self.grammars = GrammarCache()
        self._turns = ReturnTurns()
        self.scheduler = Scheduler(
            BlockManager(
                num_blocks=facts.num_blocks,
                block_size=facts.block_size,
                secret=self._random.randbytes(32),
                enable_prefix_caching=config.cache.enable_prefix_caching,
            ),
            max_num_seqs=config.scheduler.max_num_seqs,
            max_num_batched_tokens=config.scheduler.max_num_batched_tokens,
            ageing_seconds=config.scheduler.ageing_seconds,
            limits=thresholds_of(config),
            pace=Pace(
                step_time,
                step_seconds_budget=config.admission.slo_time_per_output_token,
                max_num_batched_tokens=config.scheduler.max_num_batched_tokens,
            ),
        )
        self._prefix_chunks = PrefixChunkWatch(self.scheduler.blocks.pool, facts.block_size)

    def add(self, request: AddRequest, now: float) -> TokenDelta | None:
        """Let a request in, or say to its client why not; `now` in seconds of the steps' clock.

        Raises
        ------
        RequestError
            The API server should have refused it: too long, empty, or its id is in use.
        """
        num_prompt_tokens = len(request.prompt_token_ids)
        if not 0 < num_prompt_tokens < self.facts.max_model_len:
            raise RequestError(
                f"a prompt of {num_prompt_tokens} tokens leaves no room to generate: "
                f"the model takes 1 to {self.facts.max_model_len - 1}",
                parameter="prompt",
            )
        if request.beams is not None:
            check_beams(request, self._speller)
        states = self._begin_grammars(request)
        with self._lock:
            queued, *followers = self._make_requests(request, now, states)
            try:
                refusal = self.scheduler.add(
                    queued, now, starts_now=request.starts_now, followers=followers
                )
            except ValueError as error:
                raise RequestError(str(error)) from None
            self._gateways.note(request.gateway, request.gateway_counter)
            if refusal is None:
                self._prefix_chunks.follow(queued, request.prefix_chunks)
                return None
            return self._describe(queued, refusal, now)

    def abort(self, request_ids: Iterable[str]) -> None:
        """End these requests at once; unknown ids are ignored."""
        with self._lock:
            self.scheduler.abort(request_ids)

    def abort_client(self, client_id: str) -> None:
        """End all requests of an API server that is gone."""
        with self._lock:
            self.scheduler.abort(self.scheduler.roster.request_ids_of(client_id))

    def set_thresholds(self, thresholds: Thresholds) -> None:
        """Put other limits in force, from the next decision on."""
        with self._lock:
            self.scheduler.set_thresholds(thresholds)

    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.in_flight) or self.scheduler.has_work()

    def step(self, now: float, *, num_steps: int = 1) -> list[ClientDelta]:
        """Take in the oldest step, after another was begun where two may be in flight.

        Without overlap that is: schedule, run, postprocess. Returns what the clients are to hear.

        Parameters
        ----------
        now
            Seconds of a clock that never goes back.
        num_steps
            Take so many steps as one, at most `max_identical_steps`: for virtual time.

        Raises
        ------
        EngineDeadError
            The executor can compute nothing any more.
        """
        deltas = []
        if not self.in_flight:
            deltas += self._begin(now, lambda: self.scheduler.schedule(now, num_steps=num_steps))
        computing = self.in_flight.computing
        if computing is not None:
            deltas += self._begin(now, lambda: self.scheduler.schedule_ahead(now, computing))
        return deltas + self._take_in(self.in_flight.end())

    def _begin(self, now: float, schedule: Callable[[], Plan | None]) -> list[ClientDelta]:
        """Plan a step and give it to the executor; returns who is refused meanwhile."""
        with self._lock:
            plan = schedule()
            deltas = [
                (request.client_id, self._describe(request, refusal, now))
                for request, refusal in self.scheduler.take_refused()
            ]
        if plan is not None:
            self.in_flight.begin(plan, now)
        return deltas

    def _take_in(self, ended: EndedStep) -> list[ClientDelta]:
        plan, outcome = ended.plan, ended.outcome
        deltas: list[ClientDelta] = []
        if outcome.is_whole and plan.requests and self._step_times:
            plan.measure(self._step_times, ended.run_seconds)
            self.scheduler.pace.model = self._step_times.model()
        with self._lock:
            self.num_steps += plan.batch.num_steps
            self._step_stats.count(plan.batch, ended.step_seconds)
            if outcome.errors:
                deltas += self._take_in_failures(plan, outcome)
            return deltas + self.scheduler.postprocess(plan, outcome.result, ended.ended_at)

    def profile(self) -> CoreProfile:
        """Return what was learnt so far, and the limits in force."""
        with self._lock:
            scheduler = self.scheduler
            return CoreProfile(
                lengths=scheduler.ledger.lengths.to_state(),
                step_time=scheduler.pace.model,
                z=scheduler.ledger.safety.z,
                thresholds=scheduler.admission.limits,
                calibration=self._calibration,
            )

    def prefix_news(self) -> PrefixChunks | None:
        """Return what prefixes came into the cache and left it since the last call, or None."""
        with self._lock:
            return self._prefix_chunks.news()

    def stats(self) -> CoreStats:
        """Return the counts as they are now."""
        with self._lock:
            return self._stats()

    def _stats(self) -> CoreStats:
        scheduler, pool = self.scheduler, self.scheduler.blocks.pool
        counters = scheduler.counters
        num_graph_hits, num_graph_misses = self._executor.count_graphs()
        blocks = self._count_blocks()
        ceiling = int(scheduler.admission.limits.admission * pool.num_total)
        return CoreStats(
            blocks=blocks,
            num_running=len(scheduler.running),
            num_waiting=len(scheduler.waiting) + len(scheduler.roster.held),
            num_filled_tokens=scheduler.roster.num_filled_tokens(),
            num_prompt_tokens_ahead=scheduler.roster.num_prompt_tokens_ahead(),
            num_steps=self.num_steps,
            num_preemptions=counters.num_preemptions,
            num_displacements=counters.num_displacements,
            num_freed_blocks=pool.num_freed,
            num_graph_hits=num_graph_hits,
            num_graph_misses=num_graph_misses,
            histograms=self._step_stats.histograms()
            | {
                names.keyed(names.RESERVATION_ERROR, way): counts.copy()
                for way, counts in counters.reservation_errors.items()
            },
            num_recomputed_tokens=counters.num_recomputed_tokens,
            num_prefix_queries=counters.num_prefix_queries,
            num_prefix_hits=counters.num_prefix_hits,
            num_evictions=pool.num_evictions,
            num_scheduled_tokens=counters.num_scheduled_tokens,
            num_overshoot_blocks=max(blocks.reserved - ceiling, 0),
            decisions=dict(counters.decisions),
            by_priority=scheduler.roster.count_by_priority(),
            pressure=scheduler.pressure(),
            gateway_counters=self._gateways.to_dict(),
            num_audits=self._num_audits,
        )

    def view(self, now: float) -> CoreView:
        """Return who holds which block, and what every request does; not cheap."""
        with self._lock:
            return describe_core(
                self.scheduler, self._count_blocks(), self._executor.describe(), now
            )

    def _count_blocks(self) -> BlockCounts:
        pool = self.scheduler.blocks.pool
        return BlockCounts(
            total=pool.num_total,
            held=pool.num_held,
            free=pool.num_free,
            cached=pool.num_cached,
            reserved=self.scheduler.num_reserved_blocks(),
            queued=self.scheduler.ledger.num_queued_blocks,
            yielding=self.scheduler.num_yielding_blocks(),
        )

    def check_invariants(self) -> None:
        """Check all accounts; raises RuntimeError."""
        with self._lock:
            self.scheduler.check_invariants()
            self._num_audits += 1

    def _describe(self, request: Request, refusal: Refusal, now: float) -> TokenDelta:
        """Tell a refused request when to come back: at its turn behind others refused before."""
        delta = describe_refusal(request, refusal)
        turn_seconds = predict_turn(self.scheduler, request)
        delta.retry_after_seconds = self._turns.assign(
            now, refusal.retry_after_seconds, turn_seconds
        )
        return delta

    def _begin_grammars(self, request: AddRequest) -> list[GrammarState | None]:
        """Make a state for each of a request's sequences."""
        if request.grammar is None:
            return [None] * request.num_sequences
        if request.beams is not None:
            raise RequestError("a beam search cannot heed a grammar; leave one of them out")
        compiled = self.grammars.compile(request.grammar)
        stops = request.sampling.stop_token_ids
        return [GrammarState(compiled, stops) for _ in range(request.num_sequences)]

    def _make_requests(
        self, request: AddRequest, now: float, states: list[GrammarState | None]
    ) -> list[Request]:
        """Make one for each of its sequences; their seeds count up from the first one's."""
        seed = request.sampling.seed
        first_seed = self._seeds.getrandbits(63) if seed is None else seed
        if request.beams is not None:
            return self._make_beams(request, now, first_seed)
        return [
            self._make_request(
                request, request.sampling, now, index, first_seed + index, grammar=state
            )
            for index, state in enumerate(states)
        ]

    def _make_beams(self, request: AddRequest, now: float, seed: int) -> list[Request]:
        """Make one for each beam of its search."""
        sampling = beam_sampling(request)
        width = request.beams.width if request.beams else 0
        made = [self._make_request(request, sampling, now, i, seed) for i in range(width)]
        make_group(request, made, self._speller, made[0].max_length)
        return made

    def _make_request(
        self,
        request: AddRequest,
        sampling: SamplingParams,
        now: float,
        index: int,
        seed: int,
        *,
        grammar: GrammarState | None = None,
    ) -> Request:
        length = len(request.prompt_token_ids) + sampling.max_tokens
        extras = {"salt": request.cache_salt} if request.cache_salt else {}
        self._num_added += 1
        queued = Request(
            request_id=sequence_id(request.request_id, index),
            client_id=request.client_id,
            prompt_token_ids=request.prompt_token_ids,
            sampling=sampling,
            priority=request.priority,
            seniority=(int(request.priority), now, self._num_added),
            seed=seed,
            max_length=min(length, self.facts.max_model_len),
            table=self.scheduler.blocks.open_table(extras),
            grammar=grammar,
        )
        queued.deadline = deadline_of(request, self.scheduler.admission.limits, now)
        queued.holds_room = request.holds_room
        return queued

    def _take_in_failures(self, plan: Plan, outcome: StepOutcome) -> list[ClientDelta]:
        deltas: list[ClientDelta] = []
        for index, error in outcome.errors.items():
            deltas += self.scheduler.fail(plan.requests[index], error)
        self.scheduler.roster.take_back(
            unended_rows=outcome.unended_rows, unstarted_rows=outcome.unstarted_rows
        )
        return deltas
