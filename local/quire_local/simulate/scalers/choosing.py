"""Makes scalers by their names.

All begin alike: with what the first five minutes of the trace need, of the types they use.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

from quire_engine.errors import ConfigError
from quire_local.simulate.hardware import EngineType
from quire_local.simulate.observing import Scaler
from quire_local.simulate.scalers.fixed import FixedScaler
from quire_local.simulate.scalers.greedy import GreedyScaler
from quire_local.simulate.scalers.hpa import HpaScaler, KedaScaler, KvUseScaler
from quire_local.simulate.scalers.oracle import OracleScaler
from quire_local.simulate.simulation import Scenario
from quire_local.simulate.sizing import (
    SizedWindow,
    choose_single,
    size,
    size_windows,
    split_by_length,
)

if TYPE_CHECKING:
    from quire_local.simulate.scalers.quire import QuireScaler

NAMES = ("quire", "single", "keda", "hpa", "greedy", "melange", "oracle", "fixed")


@dataclass(frozen=True, kw_only=True)
class Makers:
    """Makes scalers for one scenario.

    Parameters
    ----------
    fixed
        What `fixed` has.
    """

    scenario: Scenario
    fixed: Mapping[str, int] = field(default_factory=dict)
    min_replicas: int = 1
    max_replicas: int = 1000
    max_dollars_per_hour: float | None = None
    forgets_after: float | None = None

    def make(self, name: str) -> Scaler:
        """Make one.

        Raises
        ------
        ConfigError
            There is none of this name, or it lacks something.
        """
        makers: dict[str, Callable[[], Scaler]] = {
            "quire": self.quire,
            "single": self._single,
            "keda": partial(self._hpa, KedaScaler),
            "hpa": partial(self._hpa, KvUseScaler),
            "greedy": self._greedy,
            "melange": self._melange,
            "oracle": lambda: OracleScaler(self.windows),
            "fixed": self._fixed,
        }
        if name not in makers:
            raise ConfigError(f"unknown scaler {name!r}: choose of {', '.join(NAMES)}")
        return makers[name]()

    @cached_property
    def windows(self) -> Sequence[SizedWindow]:
        """The cheapest mix of each window: what the oracle does."""
        scenario = self.scenario
        return size_windows(scenario.trace, scenario.types, scenario.slo, limits=scenario.limits)

    @cached_property
    def single_type(self) -> EngineType:
        """The type that serves the trace alone at the least cost."""
        scenario = self.scenario
        return choose_single(scenario.trace, scenario.types, scenario.slo, limits=scenario.limits)

    def _first(self, kind: EngineType | None) -> Mapping[str, int]:
        """What the first window needs, of one type or of all."""
        if kind is None:
            return self.windows[0].replicas
        scenario = self.scenario
        first = size_windows(scenario.trace, [kind], scenario.slo, limits=scenario.limits)[0]
        return first.replicas

    def quire(self, kind: EngineType | None = None) -> "QuireScaler":
        """Make the operator's scaling: of all types, or of one."""
        # the operator's scaling is asked for here alone: rivals do without it
        from quire_local.simulate.scalers.quire import QuireScaler

        scenario = self.scenario
        return QuireScaler(
            scenario.types if kind is None else [kind],
            self._first(kind),
            slo=scenario.slo,
            limits=scenario.limits,
            min_replicas=self.min_replicas,
            max_replicas=self.max_replicas,
            max_dollars_per_hour=self.max_dollars_per_hour,
            forgets_after=self.forgets_after,
            name="quire" if kind is None else f"single ({kind.name})",
        )

    def _single(self) -> Scaler:
        return self.quire(self.single_type)

    def _hpa(self, maker: type[HpaScaler]) -> Scaler:
        kind = self.single_type
        return maker(
            kind.name,
            first_replicas=self._first(kind)[kind.name],
            min_replicas=self.min_replicas,
            max_replicas=self.max_replicas,
        )

    def _greedy(self) -> Scaler:
        types = {one.name: one for one in self.scenario.types}
        return GreedyScaler(types, self._first(None), self.max_replicas)

    def _melange(self) -> Scaler:
        scenario = self.scenario
        seconds = max(scenario.trace[-1].arrival_seconds, 1.0)
        buckets = split_by_length(scenario.trace, seconds)
        mix = size(scenario.types, buckets, scenario.slo, limits=scenario.limits)
        return FixedScaler(mix.replicas, "melange")

    def _fixed(self) -> Scaler:
        known = {one.name for one in self.scenario.types}
        unknown = self.fixed.keys() - known
        if not self.fixed or unknown:
            raise ConfigError(
                f"the scaler fixed needs --fixed with replicas of {', '.join(sorted(known))}"
                + (f", not of {', '.join(sorted(unknown))}" if unknown else "")
            )
        return FixedScaler(self.fixed)
