"""Replicas of every type: ordered, placed, started, ready, drained, gone, and paid for.

    pending ──a node──► starting ──start_seconds──► ready ──► draining ──► gone
       │                    │                         │          │
       └────────────────────┴─────────────────────────┴──fault───┘

A replica is paid for from the moment it has a node until it is gone, drain included. Whatever
faults take, is ordered again: the number that was asked for stands, as a Deployment's does.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial

from quire_gateway.choosing.endpoint import Endpoint
from quire_local.simulate.agenda import Agenda
from quire_local.simulate.engine import SimulatedEngine
from quire_local.simulate.gateway import SimulatedGateway
from quire_local.simulate.hardware import EngineType
from quire_local.simulate.telling import Teller

DRAIN_LOOK_SECONDS = 1.0

MakeEngine = Callable[[EngineType, Callable[[bool], None]], SimulatedEngine]


class Status(StrEnum):
    """Where a replica is."""

    PENDING = "pending"
    """There is no node for it."""
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    GONE = "gone"


class Replica:
    """One replica."""

    def __init__(self, name: str, kind: EngineType, now: float) -> None:
        self.name = name
        self.kind = kind
        self.status = Status.PENDING
        self.ordered_at = now
        self.placed_at: float | None = None
        self.ready_at: float | None = None
        self.ended_at: float | None = None
        self.engine: SimulatedEngine | None = None
        self.teller: Teller | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether it counts as one of those that were asked for."""
        return self.status not in (Status.DRAINING, Status.GONE)

    @property
    def has_node(self) -> bool:
        """Whether it takes a node's place."""
        return self.status not in (Status.PENDING, Status.GONE)

    def paid_seconds(self, now: float) -> float:
        """How long it has been paid for."""
        if self.placed_at is None:
            return 0.0
        return (now if self.ended_at is None else self.ended_at) - self.placed_at

    def blocks_in_flight(self) -> int:
        """Blocks that its requests hold, as it told last."""
        state = self.teller.state if self.teller else None
        return state.blocks.held if state else 0


class Nodes:
    """The cluster's nodes by type, and whose replicas they take.

    Parameters
    ----------
    types
        Each with its number of nodes: a node for each replica.
    """

    def __init__(self, types: Iterable[EngineType]) -> None:
        self.counts = {one.name: one.num_nodes for one in types}
        """Replicas that the cluster can place now."""
        self.fleets: list[Fleet] = []
        """The most important first."""

    def free(self, name: str) -> int:
        """Nodes of a type that nobody has."""
        taken = sum(one.has_node for fleet in self.fleets for one in fleet.of_type(name))
        return max(self.counts[name] - taken, 0)

    def offer(self, name: str) -> None:
        """Let replicas that wait have what is free."""
        for fleet in self.fleets:
            fleet.place(name)


class Fleet:
    """All replicas of a service.

    Parameters
    ----------
    make_engine
        Makes an engine of a type that calls what it is given when its state changes.
    nodes
        Shared with other services; None: there are those of `types`, for this one alone.
    drain_seconds
        So long running requests may go on when a replica is taken away.
    """

    def __init__(
        self,
        agenda: Agenda,
        types: Sequence[EngineType],
        gateways: Sequence[SimulatedGateway],
        make_engine: MakeEngine,
        *,
        drain_seconds: float,
        starts_at_once: bool = False,
        nodes: Nodes | None = None,
    ) -> None:
        self.types = {one.name: one for one in types}
        self._nodes = Nodes(types) if nodes is None else nodes
        self._nodes.fleets.append(self)
        self.replicas: list[Replica] = []
        """Those that are not gone."""
        self.wanted = dict.fromkeys(self.types, 0)
        self.num_changes = 0
        """Replicas that were added or taken away by decisions."""
        self.num_lost_to_drain = 0
        self.num_deaths = 0
        self.num_preemptions = 0
        """Of requests, in all engines there were."""
        self.paid_seconds = dict.fromkeys(self.types, 0.0)
        """Of replicas that are gone."""
        self.came: Callable[[Replica], None] = lambda _: None
        """Called with each replica that has become ready."""
        self._agenda = agenda
        self._gateways = gateways
        self._make_engine = make_engine
        self._drain_seconds = drain_seconds
        self._starts_at_once = starts_at_once
        self._count = 0

    def of_type(self, name: str) -> list[Replica]:
        """Replicas of a type that are not gone."""
        return [one for one in self.replicas if one.kind.name == name]

    def count(self, name: str, *statuses: Status) -> int:
        """How many replicas of a type are in one of these states."""
        return sum(one.status in statuses for one in self.of_type(name))

    def scale(self, wanted: Mapping[str, int], victims: Collection[str] = ()) -> None:
        """Have so many replicas of each type; a type that is not named stays as it is.

        Parameters
        ----------
        victims
            Names of those to take away first.
        """
        for name, count in wanted.items():
            self.num_changes += abs(count - self.wanted[name])
            self.wanted[name] = count
        self._apply(victims)

    def begin(self, wanted: Mapping[str, int]) -> None:
        """Have so many from the beginning, ready; that is no change."""
        starts_at_once, self._starts_at_once = self._starts_at_once, True
        self.wanted.update(wanted)
        self._apply()
        self._starts_at_once = starts_at_once

    def set_nodes(self, name: str, count: int) -> None:
        """Let the cluster have another number of nodes of a type; what runs goes on."""
        self._nodes.counts[name] = count
        self._nodes.offer(name)

    def die(self, replica: Replica) -> None:
        """Lose a replica at once."""
        if replica.status is Status.GONE:
            return
        self.num_deaths += 1
        self._end(replica)
        self._apply()

    def reclaim(self, replica: Replica, notice_seconds: float) -> None:
        """The cloud wants a replica back: it drains as long as it may, and another is ordered."""
        if replica.status in (Status.GONE, Status.DRAINING):
            return
        if replica.status is Status.READY:
            self._drain(replica, notice_seconds)
        else:
            self._end(replica)
        self._apply()

    def dollars(self) -> float:
        """What all replicas have cost by now."""
        total = sum(
            seconds * self.types[name].dollars_per_hour
            for name, seconds in self.paid_seconds.items()
        )
        now = self._agenda.now
        total += sum(one.paid_seconds(now) * one.kind.dollars_per_hour for one in self.replicas)
        return total / 3600

    def replica_hours(self) -> dict[str, float]:
        """Hours paid for, by type."""
        now = self._agenda.now
        hours = dict(self.paid_seconds)
        for one in self.replicas:
            hours[one.kind.name] += one.paid_seconds(now)
        return {name: seconds / 3600 for name, seconds in hours.items()}

    def endpoints_of(self, replica: Replica) -> list[Endpoint]:
        """Return a replica's endpoints in all gateways; none before it is ready."""
        found = (gateway.find(replica.name) for gateway in self._gateways)
        return [one for one in found if one is not None]

    def beat(self) -> None:
        """Engines that have no news say that they live."""
        now = self._agenda.now
        silent = {one.name for one in self.replicas if one.teller and one.teller.is_silent}
        for gateway in self._gateways:
            for endpoint in gateway.service.endpoints:
                if endpoint.address not in silent:
                    endpoint.beat(now)

    def _apply(self, victims: Collection[str] = ()) -> None:
        for name, count in self.wanted.items():
            kept = [one for one in self.of_type(name) if one.is_wanted]
            for _ in range(count - len(kept)):
                self._order(self.types[name])
            for victim in _choose_victims(kept, len(kept) - count, victims):
                if victim.status is Status.READY:
                    self._drain(victim, self._drain_seconds)
                else:
                    self._end(victim)
            self._nodes.offer(name)

    def _order(self, kind: EngineType) -> None:
        self._count += 1
        self.replicas.append(Replica(f"{kind.name}-{self._count}", kind, self._agenda.now))

    def place(self, name: str) -> None:
        """Give free nodes of a type to replicas that have none."""
        pending = [one for one in self.of_type(name) if one.status is Status.PENDING]
        for replica in pending[: self._nodes.free(name)] if pending else ():
            replica.status, replica.placed_at = Status.STARTING, self._agenda.now
            seconds = 0.0 if self._starts_at_once else replica.kind.start_seconds
            self._agenda.after(seconds, partial(self._start, replica))

    def _start(self, replica: Replica) -> None:
        if replica.status is not Status.STARTING:
            return
        replica.status, replica.ready_at = Status.READY, self._agenda.now
        teller = replica.teller = Teller(self._agenda)
        engine = replica.engine = self._make_engine(replica.kind, teller.mark_changed)
        for gateway in self._gateways:
            endpoint = gateway.join(replica.name, replica.kind.name, engine)
            teller.follow(partial(gateway.hear, endpoint))
        teller.begin(engine)
        self.came(replica)

    def _drain(self, replica: Replica, seconds: float) -> None:
        replica.status = Status.DRAINING
        for endpoint in self.endpoints_of(replica):
            endpoint.is_leaving = True
        self._look_at_drained(replica, self._agenda.now + seconds)

    def _look_at_drained(self, replica: Replica, until: float) -> None:
        """End a replica that owes no answers any more, or has had its time."""
        if replica.status is not Status.DRAINING:
            return
        in_flight = sum(endpoint.num_in_flight for endpoint in self.endpoints_of(replica))
        if in_flight and self._agenda.now < until:
            look = partial(self._look_at_drained, replica, until)
            self._agenda.after(DRAIN_LOOK_SECONDS, look)
            return
        if in_flight:
            self.num_lost_to_drain += in_flight
        self._end(replica)
        self._nodes.offer(replica.kind.name)

    def _end(self, replica: Replica) -> None:
        replica.status, replica.ended_at = Status.GONE, self._agenda.now
        self.replicas.remove(replica)
        self.paid_seconds[replica.kind.name] += replica.paid_seconds(self._agenda.now)
        if replica.engine is None or replica.teller is None:
            return
        replica.teller.stop()
        counters = replica.engine.core.scheduler.counters
        self.num_preemptions += counters.num_preemptions
        jobs = replica.engine.die()
        for gateway in self._gateways:
            gateway.lose_engine(replica.name, jobs)


def _choose_victims(
    replicas: Iterable[Replica], count: int, named: Collection[str]
) -> list[Replica]:
    """Return those to take away: who was named, what has not started, who has least to finish."""
    order = {Status.PENDING: 0, Status.STARTING: 1, Status.READY: 2}
    ranked = sorted(
        replicas,
        key=lambda one: (
            one.name not in named,
            order[one.status],
            one.blocks_in_flight(),
            -one.ordered_at,
        ),
    )
    return ranked[: max(count, 0)]
