"""One trace, one scaler, one result."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from quire_engine.config import EngineConfig
from quire_engine.core.limits import thresholds_of
from quire_engine.errors import ConfigError
from quire_engine.profiles.traces import TraceRequest
from quire_engine.protocol.messages import TokenDelta
from quire_local.simulate.agenda import Agenda
from quire_local.simulate.engine import SimulatedEngine
from quire_local.simulate.faults import Event, Faults
from quire_local.simulate.fleet import Fleet, Nodes, Replica, Status
from quire_local.simulate.gateway import SimulatedGateway
from quire_local.simulate.hardware import EngineType, Limits, ServiceLevel
from quire_local.simulate.jobs import Fate, Job
from quire_local.simulate.observing import GatewaySeen, Observation, ReplicaSeen, Scaled, Scaler
from quire_local.simulate.prices import per_million
from quire_local.simulate.results import (
    Decided,
    Sample,
    SimulationResult,
    attainment,
    count_answers,
    count_refusals,
    first_token_attainment,
    per_token_attainment,
    quantile,
    split_windows,
)

SAMPLE_SECONDS = 5.0
BEAT_SECONDS = 1.0
GUESS_SIGMA = 0.15
"""Of the logarithm of how wrong a gateway is about a prompt's tokens: it has no tokenizer."""
DEFAULT_MAX_TOKENS = 2000


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is simulated, whoever scales."""

    trace: Sequence[TraceRequest]
    """No request longer than the model takes: see `workload`."""
    types: Sequence[EngineType]
    max_model_len: int
    slo: ServiceLevel = field(default_factory=ServiceLevel)
    limits: Limits = field(default_factory=Limits)
    max_tokens: int = DEFAULT_MAX_TOKENS
    """What every client asks for."""
    num_gateways: int = 1
    fail_hours: float | None = None
    events: Sequence[Event] = ()
    seed: int = 0


def simulate(
    scenario: Scenario,
    scaler: Scaler,
    *,
    progress: Callable[[float], None] = lambda _: None,
) -> SimulationResult:
    """Replay the trace, until the last request's fate is known.

    Parameters
    ----------
    progress
        Called now and then with the share of the requests that have ended.

    Raises
    ------
    ConfigError
        There is no request, or no type.
    """
    return Simulation(scenario, scaler, progress).run()


class Simulation:
    """All parts of one run, or of one service of several that share time and nodes."""

    def __init__(
        self,
        scenario: Scenario,
        scaler: Scaler,
        progress: Callable[[float], None],
        *,
        agenda: Agenda | None = None,
        nodes: Nodes | None = None,
    ) -> None:
        if not scenario.trace or not scenario.types:
            raise ConfigError("a simulation needs a request and a type of GPU that can serve")
        self.scenario = scenario
        self.scaler = scaler
        self.agenda = agenda or Agenda()
        self.takes_leaps = True
        """Whether engines take many decode steps as one; without it, the same comes slower."""
        self._progress = progress
        self.num_ended = 0
        """Requests whose fate is known."""
        self._num_engines = 0
        self._samples: list[Sample] = []
        self._decisions: list[Decided] = []
        self.jobs = make_jobs(scenario)
        self._limits = scenario.limits
        self._lengths = {job.number: job.num_output_tokens for job in self.jobs}
        self._configs = {one.name: self._config(one) for one in scenario.types}
        self.gateways = [self._make_gateway(index) for index in range(scenario.num_gateways)]
        self.fleet = Fleet(
            self.agenda,
            scenario.types,
            self.gateways,
            self._make_engine,
            drain_seconds=scenario.limits.drain_seconds,
            starts_at_once=scaler.is_prophet,
            nodes=nodes,
        )
        self.faults = Faults(
            self.agenda,
            self.fleet,
            random=Random(f"faults {scenario.seed}"),
            fail_hours=scenario.fail_hours,
            events=scenario.events,
        )

    def run(self) -> SimulationResult:
        """Let time pass until all requests have ended."""
        self.begin()
        self.agenda.at(0.0, self._decide)
        self.agenda.run(lambda: self.is_over)
        return self.result()

    @property
    def is_over(self) -> bool:
        """Whether all requests' fates are known."""
        return self.num_ended == len(self.jobs)

    def change_limits(self, limits: Limits) -> None:
        """Let engines and gateways keep others from now on, as they do while they run.

        Whoever scales has its own.
        """
        self._limits = limits
        self._configs = {one.name: self._config(one) for one in self.scenario.types}
        thresholds = thresholds_of(next(iter(self._configs.values())))
        for replica in self.fleet.replicas:
            if replica.engine is not None:
                replica.engine.set_thresholds(thresholds)
        for gateway in self.gateways:
            gateway.set_thresholds(thresholds)

    def begin(self) -> None:
        """Put the first replicas and requests on the agenda."""
        self.fleet.begin(self.scaler.begin())
        self._arrive(0)
        self.agenda.at(0.0, self._beat)
        self.agenda.at(0.0, self._sample)

    def _config(self, kind: EngineType) -> EngineConfig:
        scenario = self.scenario
        return kind.config(
            max_model_len=scenario.max_model_len,
            slo=scenario.slo,
            limits=self._limits,
            has_deadlines=self.scaler.has_deadlines,
        )

    def _make_gateway(self, index: int) -> SimulatedGateway:
        config = next(iter(self._configs.values()))
        return SimulatedGateway(
            f"g{index}",
            self.agenda,
            thresholds=thresholds_of(config),
            cold_start_queue_seconds=self.scenario.limits.cold_start_queue_seconds,
            accelerators=tuple(self._configs),
            seed=self._seed(f"gateway {index}"),
            settled=self._settled,
        )

    def _make_engine(self, kind: EngineType, changed: Callable[[bool], None]) -> SimulatedEngine:
        self._num_engines += 1
        return SimulatedEngine(
            self._configs[kind.name],
            kind.target,
            agenda=self.agenda,
            lengths=self._lengths,
            seed=self._seed(f"engine {self._num_engines}"),
            take=self._take,
            changed=changed,
            takes_leaps=self.takes_leaps,
        )

    def _seed(self, what: str) -> int:
        return Random(f"{what} {self.scenario.seed}").getrandbits(32)

    def _gateway_of(self, job: Job) -> SimulatedGateway:
        return self.gateways[job.number % len(self.gateways)]

    def _take(self, job: Job, delta: TokenDelta, now: float) -> None:
        self._gateway_of(job).take(job, delta, now)

    def _arrive(self, index: int) -> None:
        """Let the next request come, and then the one after it."""
        job = self.jobs[index]

        def come() -> None:
            self._gateway_of(job).arrive(job)
            if index + 1 < len(self.jobs):
                self._arrive(index + 1)

        self.agenda.at(job.arrival, come)

    def _settled(self, _: Job) -> None:
        self.num_ended += 1
        if self.num_ended % 256 == 0:
            self._tell_progress()

    def _tell_progress(self) -> None:
        self._progress(self.num_ended / len(self.jobs))

    def _beat(self) -> None:
        self.fleet.beat()
        self.agenda.after(BEAT_SECONDS, self._beat)

    def _decide(self) -> None:
        self.follow(self.scaler.decide(self.observe()))
        self.agenda.after(self.scaler.period_seconds, self._decide)

    def follow(self, scaled: Scaled) -> None:
        """Order what was decided."""
        wanted = {**self.fleet.wanted, **scaled.replicas}
        if wanted != self.fleet.wanted:
            self._decisions.append(
                Decided(at=self.agenda.now, replicas=wanted, reason=scaled.reason)
            )
            self.fleet.scale(scaled.replicas, scaled.victims)
        for gateway in self.gateways:
            gateway.set_shares(scaled.shares)

    def observe(self) -> Observation:
        """Look at everything as a scaler does."""
        now = self.agenda.now
        return Observation(
            now=now,
            types=self.scenario.types,
            ordered=dict(self.fleet.wanted),
            replicas=[self._see(one) for one in self.fleet.replicas],
            gateways=[
                GatewaySeen(
                    name=gateway.name,
                    demand=gateway.service.arrivals.report(now),
                    num_waiting=gateway.num_waiting,
                    oldest_seconds=gateway.oldest_wait(),
                )
                for gateway in self.gateways
                if not self.faults.are_gateways_silent
            ],
            num_gateways=len(self.gateways),
        )

    def _see(self, replica: Replica) -> ReplicaSeen:
        heard = [one.heard_at for one in self.fleet.endpoints_of(replica)]
        return ReplicaSeen(
            name=replica.name,
            engine_type=replica.kind.name,
            status=replica.status,
            waiting_since=replica.ordered_at if replica.status is Status.PENDING else None,
            state=replica.teller.state if replica.teller else None,
            silent_seconds=self.agenda.now - max(heard, default=self.agenda.now),
        )

    def _sample(self) -> None:
        ready = [one for one in self.fleet.replicas if one.status is Status.READY]
        states = [one.teller.state for one in ready if one.teller]
        pressures = [s.pressure for s in states if s is not None and s.pressure is not None]
        worst = max(pressures, key=lambda one: one.value, default=None)
        engines = [one.engine for one in self.fleet.replicas if one.engine]
        self._samples.append(
            Sample(
                at=self.agenda.now,
                ready=self._counts(Status.READY),
                coming=self._counts(Status.STARTING, Status.PENDING),
                dollars_per_hour=sum(
                    one.kind.dollars_per_hour for one in self.fleet.replicas if one.has_node
                ),
                num_waiting=sum(gateway.num_waiting for gateway in self.gateways)
                + sum(len(engine.core.scheduler.waiting) for engine in engines),
                num_running=sum(len(engine.core.scheduler.running) for engine in engines),
                pressure=sum(p.value for p in pressures) / len(pressures) if pressures else 0.0,
                worst_pressure=worst.value if worst else 0.0,
                binding=worst.binding if worst else "",
            )
        )
        self._tell_progress()  # also where nobody asks for hours
        self.agenda.after(SAMPLE_SECONDS, self._sample)

    def _counts(self, *statuses: Status) -> Mapping[str, int]:
        return {name: self.fleet.count(name, *statuses) for name in self.fleet.types}

    def result(self) -> SimulationResult:
        """Figures of all requests; each has ended."""
        if not self.is_over:
            raise RuntimeError("bug: requests are left, and nothing will happen any more")
        jobs, slo, seconds = self.jobs, self.scenario.slo, self.agenda.now
        fleet = self.fleet
        hours = max(seconds, 1.0) / 3600
        answered = [job for job in jobs if job.fate is Fate.ANSWERED]
        num_tokens = sum(job.num_received for job in answered)
        share = attainment(jobs, slo)
        live = [one.engine for one in fleet.replicas if one.engine]
        preemptions = sum(engine.core.scheduler.counters.num_preemptions for engine in live)
        return SimulationResult(
            scaler=self.scaler.name,
            seed=self.scenario.seed,
            num_requests=len(jobs),
            seconds=seconds,
            dollars=fleet.dollars(),
            dollars_per_hour=fleet.dollars() / hours,
            num_output_tokens=num_tokens,
            dollars_per_million_output_tokens=per_million(fleet.dollars(), num_tokens),
            attainment=share,
            first_token_attainment=first_token_attainment(jobs, slo),
            per_token_attainment=per_token_attainment(jobs, slo),
            percentile=slo.percentile,
            meets_slo=share >= slo.percentile / 100,
            first_token_seconds=quantile([job.first_token_seconds for job in jobs], slo.percentile),
            per_token_seconds=quantile([job.per_token_seconds for job in answered], slo.percentile),
            tokens_per_second=num_tokens / max(seconds, 1.0),
            num_refused=sum(job.fate is Fate.REFUSED for job in jobs),
            num_lost=sum(job.fate is Fate.LOST for job in jobs),
            num_lost_to_drain=fleet.num_lost_to_drain,
            num_preemptions=fleet.num_preemptions + preemptions,
            num_changes=fleet.num_changes,
            changes_per_hour=fleet.num_changes / hours,
            num_deaths=fleet.num_deaths,
            replica_hours=fleet.replica_hours(),
            answered_by=count_answers(jobs),
            refusals=count_refusals(jobs),
            samples=self._samples,
            decisions=self._decisions,
            faults=self.faults.happened,
            windows=split_windows(jobs, slo),
        )


def make_jobs(scenario: Scenario) -> list[Job]:
    """Make the clients' requests."""
    random = Random(f"guesses {scenario.seed}")
    return [
        Job(
            number=number,
            arrival=request.arrival_seconds,
            num_prompt_tokens=request.num_prompt_tokens,
            num_output_tokens=request.num_output_tokens,
            max_tokens=min(
                max(scenario.max_tokens, request.num_output_tokens),
                scenario.max_model_len - request.num_prompt_tokens,
            ),
            guessed_prompt_tokens=max(
                round(request.num_prompt_tokens * random.lognormvariate(0.0, GUESS_SIGMA)), 1
            ),
        )
        for number, request in enumerate(scenario.trace)
    ]
