"""Several services that share a cluster: one clock, one stock of GPUs, one decision for all.

Each has its own traffic, gateways and engines. Who is more important gets GPUs first, by what
scaling decides, and where replicas wait for a node.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from quire_engine.errors import ConfigError
from quire_local.simulate.agenda import Agenda
from quire_local.simulate.fleet import Nodes
from quire_local.simulate.results import SimulationResult
from quire_local.simulate.scalers.quire import QuireScaler, scaled_of, stock_of
from quire_local.simulate.simulation import Scenario, Simulation
from quire_operator.scaling.decide import decide
from quire_operator.scaling.decision import ScalingMemory
from quire_operator.scaling.inputs import ScalingInputs


@dataclass(frozen=True, kw_only=True)
class SimulatedService:
    """One of them."""

    name: str
    scenario: Scenario
    """Types with the same name are the same GPUs in all of them."""
    scaler: QuireScaler
    priority: int = 0


@dataclass(frozen=True, kw_only=True)
class Round:
    """One decision for all services."""

    at: float
    processor_seconds: float
    """That it took here."""


class Several:
    """All of them, once.

    Raises
    ------
    ConfigError
        There is none, or two have one name, or they know another number of one type's nodes.
    """

    def __init__(
        self,
        services: Sequence[SimulatedService],
        *,
        looked: Callable[["Several"], None] = lambda _: None,
        progress: Callable[[float], None] = lambda _: None,
    ) -> None:
        names = [one.name for one in services]
        if not services or len(set(names)) < len(names):
            raise ConfigError("a simulation needs services, each with a name of its own")
        kinds = {kind.name: kind for one in services for kind in one.scenario.types}
        if any(
            kind.num_nodes != kinds[kind.name].num_nodes
            for one in services
            for kind in one.scenario.types
        ):
            raise ConfigError("services that share GPUs must agree on how many there are")
        self.agenda = Agenda()
        self.rounds: list[Round] = []
        self._looked = looked
        self._progress = progress
        self._stock = stock_of(list(kinds.values()))
        self._memory = ScalingMemory()
        nodes = Nodes(kinds.values())
        self._services = sorted(services, key=lambda one: -one.priority)
        self.simulations: Mapping[str, Simulation] = {
            one.name: Simulation(
                one.scenario, one.scaler, self._tell, agenda=self.agenda, nodes=nodes
            )
            for one in self._services
        }

    def run(self) -> dict[str, SimulationResult]:
        """Let time pass until all requests of all services have ended."""
        for one in self.simulations.values():
            one.begin()
        self.agenda.at(0.0, self._decide)
        going = list(self.simulations.values())

        def is_over() -> bool:
            while going and going[-1].is_over:
                going.pop()
            return not going

        self.agenda.run(is_over)
        return {name: one.result() for name, one in self.simulations.items()}

    def _tell(self, _: float) -> None:
        """Tell how far all of them are."""
        ended = sum(one.num_ended for one in self.simulations.values())
        self._progress(ended / sum(len(one.jobs) for one in self.simulations.values()))

    def _decide(self) -> None:
        inputs = ScalingInputs(
            now=self.agenda.now,
            services=tuple(
                one.scaler.inputs(self.simulations[one.name].observe(), one.name, one.priority)
                for one in self._services
            ),
            stock=self._stock,
        )
        began = time.process_time()
        decision, self._memory = decide(inputs, self._memory)
        seconds = time.process_time() - began
        self.rounds.append(Round(at=self.agenda.now, processor_seconds=seconds))
        for one in decision.services:
            self.simulations[one.key].follow(scaled_of(one))
        self._looked(self)
        self.agenda.after(QuireScaler.period_seconds, self._decide)
