"""What happens when: the only clock of a simulation."""

from collections.abc import Callable
from heapq import heappop, heappush

from quire_engine.paused_collection import no_garbage_collected

Action = Callable[[], None]


class Appointment:
    """Something that will happen, unless it is called off."""

    __slots__ = ("action",)

    def __init__(self, action: Action) -> None:
        self.action: Action | None = action

    def cancel(self) -> None:
        """It will not happen."""
        self.action = None


class Agenda:
    """Appointments in the order of their times, and of their making where times are equal."""

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds since the beginning."""
        self._count = 0
        self._appointments: list[tuple[float, int, Appointment]] = []

    def time(self) -> float:
        """Seconds since the beginning, as clocks are asked."""
        return self.now

    def at(self, time: float, action: Action) -> Appointment:
        """Do something at a time; what is past is done next."""
        appointment = Appointment(action)
        self._count += 1
        heappush(self._appointments, (max(time, self.now), self._count, appointment))
        return appointment

    def after(self, seconds: float, action: Action) -> Appointment:
        """Do something so many seconds from now."""
        return self.at(self.now + seconds, action)

    def soon(self, action: Callable[..., object], *arguments: object) -> None:
        """Do something as soon as the caller has returned."""

        def run() -> None:
            action(*arguments)

        self.at(self.now, run)

    def run(self, until: Callable[[], bool]) -> None:
        """Let time pass until somebody says that it is enough, or nothing is left to happen."""
        # millions of objects are made and no cycles: looking for them took a fifth of the time
        with no_garbage_collected():
            appointments = self._appointments
            while appointments and not until():
                time, _, appointment = heappop(appointments)
                action = appointment.action
                if action is None:
                    continue
                self.now = time
                action()
