"""What breaks: now and then by chance, or at a time that somebody chose.

    fail    a replica dies, once in so many hours of each
    spot    the cloud wants a replica back, once in so many hours of each, and says so before

Events are at one moment: `SECONDS:KIND:TYPE[:SHARE]`

    kill     a share of a type's replicas dies
    reclaim  the cloud wants a share of them back, with notice
    vanish   the cluster has no nodes of the type any more, and its replicas die
    return   it has as many again as at first
    silence  nothing is heard of a share of them, while they serve on
    speak    they are heard again

`silence` and `speak` may name `gateways` in place of a type: scaling then hears nothing of them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Literal, get_args

from quire_engine.errors import ConfigError
from quire_local.simulate.agenda import Agenda
from quire_local.simulate.fleet import Fleet, Replica, Status
from quire_local.simulate.results import Fault
from quire_local.words import plain

SPOT_NOTICE_SECONDS = 30.0
EventKind = Literal["kill", "reclaim", "vanish", "return", "silence", "speak"]
GATEWAYS = "gateways"
_WHOLE = ("vanish", "return")
"""Kinds that a type has no share of."""
_WORDS: dict[EventKind, str] = {
    "kill": "{some} {name} died",
    "reclaim": f"the cloud wants {{some}} {{name}} back, in {SPOT_NOTICE_SECONDS:.0f} s",
    "vanish": "the nodes of {name} are gone: {some} {name} died",
    "return": "nodes of {name} are back",
    "silence": "nothing is heard of {some} {name} any more",
    "speak": "{some} {name} can be heard again",
}
"""What happened, to how many of which replicas."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One thing that happens to a type."""

    at: float
    kind: EventKind
    engine_type: str
    share: float = 1.0

    def __str__(self) -> str:
        """As the command line has it."""
        share = "" if self.share == 1.0 else f":{plain(self.share)}"
        return f"{plain(self.at)}:{self.kind}:{self.engine_type}{share}"


def parse_event(text: str) -> Event:
    """Read `SECONDS:KIND:TYPE[:SHARE]`.

    Raises
    ------
    ConfigError
        It is none; the message says what one looks like.
    """
    parts = text.split(":")
    try:
        at, kind, name = parts[0], parts[1], parts[2]
        share = float(parts[3]) if len(parts) == 4 else 1.0
        seconds = float(at)
    except (IndexError, ValueError):
        raise ConfigError(_usage(text)) from None
    is_known = kind in get_args(EventKind) and len(parts) <= 4
    if name.lower() == GATEWAYS and kind not in ("silence", "speak"):
        raise ConfigError(f"event {text!r}: gateways can only fall silent, and speak again")
    if len(parts) == 4 and (kind in _WHOLE or name.lower() == GATEWAYS):
        raise ConfigError(f"event {text!r}: this is of all of them: leave the share out")
    if not is_known or not 0 <= seconds < math.inf or not 0 < share <= 1:
        raise ConfigError(_usage(text))
    return Event(at=seconds, kind=kind, engine_type=name.lower(), share=share)  # type: ignore[arg-type]  # just looked


def _usage(text: str) -> str:
    kinds = ", ".join(get_args(EventKind))
    return (
        f"event {text!r}: write SECONDS:KIND:GPU or SECONDS:KIND:GPU:SHARE, such as"
        f" 600:reclaim:l4:0.5; kinds are {kinds}, shares above 0 and up to 1"
    )


class Faults:
    """Breaks a fleet.

    Parameters
    ----------
    fail_hours
        Mean time between deaths of a replica; None: none dies.
    """

    def __init__(
        self,
        agenda: Agenda,
        fleet: Fleet,
        *,
        random: Random,
        fail_hours: float | None,
        events: Sequence[Event],
    ) -> None:
        self._agenda = agenda
        self._fleet = fleet
        self._random = random
        self._fail_hours = fail_hours
        self.are_gateways_silent = False
        self.happened: list[Fault] = []
        """All of it, in order."""
        fleet.came = self._begin
        for event in events:
            agenda.at(event.at, partial(self._happen, event))

    def _begin(self, replica: Replica) -> None:
        self._at_random(self._fail_hours, partial(self._fail, replica))
        self._at_random(replica.kind.spot_hours, partial(self._reclaim, replica))

    def _fail(self, replica: Replica) -> None:
        if replica.status is not Status.GONE:
            self._note(f"{replica.name} died")
        self._fleet.die(replica)

    def _reclaim(self, replica: Replica) -> None:
        if replica.status not in (Status.GONE, Status.DRAINING):
            self._note(f"the cloud wants {replica.name} back, in {SPOT_NOTICE_SECONDS:.0f} s")
        self._fleet.reclaim(replica, SPOT_NOTICE_SECONDS)

    def _note(self, what: str) -> None:
        self.happened.append(Fault(at=self._agenda.now, what=what))

    def _at_random(self, mean_hours: float | None, action: Callable[[], None]) -> None:
        if mean_hours is not None:
            self._agenda.after(self._random.expovariate(1 / (mean_hours * 3600)), action)

    def _happen(self, event: Event) -> None:
        fleet, name = self._fleet, event.engine_type
        if name == GATEWAYS:
            self.are_gateways_silent = event.kind == "silence"
            self._note(_WORDS[event.kind].format(some="the", name=name))
            return
        if event.kind == "return":
            self._note(_WORDS[event.kind].format(name=name))
            fleet.set_nodes(name, fleet.types[name].num_nodes)
            return
        if event.kind == "vanish":
            fleet.set_nodes(name, 0)
        chosen = self._choose(name, event.share)
        self._note(_WORDS[event.kind].format(some=len(chosen) or "no", name=name))
        for replica in chosen:
            if event.kind in ("kill", "vanish"):
                fleet.die(replica)
            elif event.kind == "reclaim":
                fleet.reclaim(replica, SPOT_NOTICE_SECONDS)
            elif replica.teller is not None:
                replica.teller.is_silent = event.kind == "silence"
                replica.teller.mark_changed(True)

    def _choose(self, name: str, share: float) -> list[Replica]:
        held = [one for one in self._fleet.of_type(name) if one.status is not Status.PENDING]
        return self._random.sample(held, math.ceil(share * len(held)))
