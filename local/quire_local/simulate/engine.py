"""One engine: a real core whose steps take virtual time.

What only decodes is taken as one leap of many steps, and not before it is known how many: a leap
begins, and whoever needs the engine meanwhile (an arrival, a gateway that is told the state) first
lets it have made the steps that have begun by then. So a leap is never undone, and it ends where
single steps would.

    idle ──add──► step (with prompts)  ──► deltas at its end ──► next
                  leap (decodes only)  ──► settled when it ends, or when somebody looks
"""

import random
from bisect import bisect_left
from collections.abc import Callable, Mapping

from quire_engine.config import EngineConfig
from quire_engine.core.engine import EngineCore
from quire_engine.execution.clocks import VirtualClock
from quire_engine.execution.scripted import ScriptedExecutor
from quire_engine.execution.simulation_target import SimulationTarget
from quire_engine.protocol.messages import AddRequest, FinishReason, Thresholds, TokenDelta
from quire_engine.protocol.sampling import SamplingParams
from quire_local.simulate.agenda import Agenda, Appointment
from quire_local.simulate.jobs import Job

STOP_TOKEN = 2
LEAP_SECONDS = 1.0
"""No leap is longer."""

Take = Callable[[Job, TokenDelta, float], None]
"""Called with a request's news, and the time at which the step ended that brought them."""


class SimulatedEngine:
    """One engine.

    Parameters
    ----------
    lengths
        True lengths of outputs by the requests' numbers, which are their seeds.
    take
        Gets all news of requests.
    changed
        Called when the state is another one, with whether that is news: something came, began to be
        answered or ended. Else the same requests only went on.
    """

    def __init__(
        self,
        config: EngineConfig,
        target: SimulationTarget,
        *,
        agenda: Agenda,
        lengths: Mapping[int, int],
        seed: int,
        take: Take,
        changed: Callable[[bool], None],
        takes_leaps: bool = True,
    ) -> None:
        self.config = config
        self._agenda = agenda
        self._take = take
        self._changed = changed
        self._takes_leaps = takes_leaps
        self._clock = VirtualClock(agenda.now)
        self._executor = ScriptedExecutor(
            config, clock=self._clock, output_lengths=lengths, target=target
        )
        facts = self._executor.allocate_cache()
        self.core = EngineCore(config, self._executor, facts, random_source=random.Random(seed))
        self.jobs: dict[str, Job] = {}
        """Those that it has."""
        self.num_leaps = 0
        self._leap: list[float] = []
        """Ends of the steps of a leap that is going on and not settled."""
        self._leap_began = 0.0
        self._deltas: list[tuple[str, TokenDelta]] = []
        """News that come at the end of the step."""
        self._due: Appointment | None = None
        """The end of the step or leap."""

    def add(
        self,
        job: Job,
        *,
        holds_room: bool,
        deadline_seconds: float | None,
        gateway: str,
        count: int,
    ) -> TokenDelta | None:
        """Let a request in; what is returned is a refusal."""
        self.settle()
        request_id = f"{job.number}"
        refusal = self.core.add(
            AddRequest(
                client_id=gateway,
                request_id=request_id,
                prompt_token_ids=[1] * job.num_prompt_tokens,
                sampling=SamplingParams(
                    max_tokens=job.max_tokens, seed=job.number, stop_token_ids=(STOP_TOKEN,)
                ),
                starts_now=not holds_room,
                holds_room=holds_room,
                deadline_seconds=deadline_seconds,
                gateway=gateway,
                gateway_counter=count,
            ),
            self._agenda.now,
        )
        if refusal is None:
            self.jobs[request_id] = job
            if self._due is None:
                self._begin()
        self._changed(True)
        return refusal

    def settle(self) -> None:
        """Let the core be where it is now: what has begun of a leap, it has made."""
        if not self._leap:
            return
        begun = min(bisect_left(self._leap, self._agenda.now) + 1, len(self._leap))
        if self._due is not None:
            self._due.cancel()
        self._run(begun)

    def set_thresholds(self, thresholds: Thresholds) -> None:
        """Keep other limits from now on."""
        self.settle()
        self.core.set_thresholds(thresholds)
        self._changed(True)

    def die(self) -> list[Job]:
        """End at once, and return the requests that it had."""
        if self._due is not None:
            self._due.cancel()
        self._due, self._leap, self._deltas = None, [], []
        jobs, self.jobs = list(self.jobs.values()), {}
        return jobs

    def _begin(self) -> None:
        self._clock.sleep_until(self._agenda.now)
        scheduler = self.core.scheduler
        limit = scheduler.max_identical_steps() if self._takes_leaps else 1
        if limit > 1:
            positions = {r.row: r.num_computed_tokens for r in scheduler.running}
            until = self._agenda.now + LEAP_SECONDS
            ends = self._executor.time_steps(limit, positions=positions, until=until)  # type: ignore[arg-type]  # who runs has a row
            if len(ends) > 1:
                self._leap, self._leap_began = ends, self._agenda.now
                self._due = self._agenda.at(ends[-1], self._end_leap)
                return
        self._leap_began = self._agenda.now
        self._run(1)

    def _run(self, num_steps: int) -> None:
        """Take so many steps; what they bring is told when the last of them ends."""
        self._leap = []
        self.num_leaps += 1
        self._deltas = self.core.step(self._leap_began, num_steps=num_steps)
        self._due = self._agenda.at(self._clock.now(), self._end)

    def _end_leap(self) -> None:
        self._run(len(self._leap))
        if self._due is not None:
            self._due.cancel()
        self._end()

    def _end(self) -> None:
        now = self._agenda.now
        self._due = None
        deltas, self._deltas = self._deltas, []
        if self.core.has_work():
            self._begin()
        is_news = False
        for _, delta in deltas:
            job = self.jobs[delta.request_id]
            if delta.finish_reason is not None:
                del self.jobs[delta.request_id]
            elif job.first_token_at is not None:
                job.num_received += len(delta.token_ids)  # most are this: no gateway is asked
                continue
            is_news = True
            self._take(job, delta, now)
        self._changed(is_news)


def is_refusal(delta: TokenDelta) -> bool:
    """Whether a request that waited was sent away."""
    return delta.finish_reason is FinishReason.REFUSED
