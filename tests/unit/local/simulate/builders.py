"""Small simulations."""

from collections.abc import Mapping, Sequence
from typing import Any

from quire_engine.profiles.traces import TraceRequest
from quire_local.simulate.faults import parse_event
from quire_local.simulate.hardware import EngineType, ServiceLevel, make_engine_type
from quire_local.simulate.observing import Observation, Scaled, Scaler
from quire_local.simulate.simulation import Scenario
from quire_local.simulate.workload import Kind, generate_workload

MAX_MODEL_LEN = 8192
SLO = ServiceLevel(first_token_seconds=2.0, per_token_seconds=0.12)


def engine_types(*names: str, **fields: Any) -> list[EngineType]:
    made = [
        make_engine_type(
            name,
            "llama3-8b",
            quantization="int4",
            max_model_len=MAX_MODEL_LEN,
            slo=SLO,
            **fields,
        )
        for name in names
    ]
    return [one for one in made if isinstance(one, EngineType)]


def traffic(
    seconds: float = 60.0, rate: float = 3.0, kind: Kind = "poisson", seed: int = 0
) -> list[TraceRequest]:
    workload = generate_workload(kind, requests_per_second=rate, seconds=seconds, seed=seed)
    longest = MAX_MODEL_LEN - 1
    return [
        one for one in workload.trace if one.num_prompt_tokens + one.num_output_tokens <= longest
    ]


def scenario(
    trace: Sequence[TraceRequest] | None = None,
    types: Sequence[EngineType] = (),
    *,
    events: Sequence[str] = (),
    **fields: Any,
) -> Scenario:
    return Scenario(
        trace=traffic() if trace is None else trace,
        types=types or engine_types("l4", "a100-80"),
        max_model_len=MAX_MODEL_LEN,
        slo=SLO,
        events=[parse_event(text) for text in events],
        **fields,
    )


class Scripted(Scaler):
    """Wants what a script says from a time on."""

    name = "scripted"
    period_seconds = 1.0
    is_prophet = False

    def __init__(
        self,
        script: Mapping[float, Mapping[str, int]],
        victims: Sequence[str] = (),
        *,
        has_deadlines: bool = True,
    ) -> None:
        self.has_deadlines = has_deadlines
        self._script = script
        self._victims = tuple(victims)
        self.seen: list[Observation] = []

    def begin(self) -> Mapping[str, int]:
        return self._script[0.0]

    def decide(self, seen: Observation) -> Scaled:
        self.seen.append(seen)
        latest = max(at for at in self._script if at <= seen.now)
        return Scaled(replicas=self._script[latest], victims=self._victims, reason="the script")
