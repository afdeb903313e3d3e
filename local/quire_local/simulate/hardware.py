"""Types of engines: one model on one GPU, with what it costs and how long it takes to come."""

from dataclasses import dataclass

from quire_engine.config import (
    AdmissionConfig,
    CacheConfig,
    EngineConfig,
    ExecutorConfig,
    ModelConfig,
    SchedulerConfig,
)
from quire_engine.errors import CapacityError
from quire_engine.execution.simulation_target import SimulationTarget
from quire_engine.profiles.capacity import count_kv_blocks
from quire_engine.profiles.gpus import find_gpu
from quire_engine.profiles.roofline import estimate_step_time
from quire_engine.profiles.shapes import Quantization, find_shape
from quire_engine.profiles.shipped import find_shipped
from quire_engine.profiles.step_time import StepTimeModel
from quire_operator.scaling.capacity import milliseconds

BLOCK_SIZE = 16
MAX_NUM_SEQS = 256
MAX_NUM_BATCHED_TOKENS = 8192
"""As the resource's defaults."""
DEFAULT_START_SECONDS = 90.0
"""From the order to the first answer: a node, an image, a model. A node autoscaler takes longer."""
UNLIMITED = 1 << 20
_LONG_QUEUE_SECONDS = 600.0
"""As engines let requests wait that promise nothing."""


@dataclass(frozen=True, kw_only=True)
class ServiceLevel:
    """What is promised."""

    first_token_seconds: float = 2.0
    per_token_seconds: float = 0.06
    percentile: int = 95
    """Of how many percent of the requests."""


@dataclass(frozen=True, kw_only=True)
class EngineType:
    """One model on one type of GPU."""

    name: str
    target: SimulationTarget
    num_blocks: int
    dollars_per_hour: float
    start_seconds: float = DEFAULT_START_SECONDS
    num_nodes: int = UNLIMITED
    """Most replicas that the cluster can place."""
    spot_hours: float | None = None
    """Mean time until the cloud wants a replica back; None: never."""
    is_measured: bool = False
    """Whether its step times were measured; else they are reckoned from data sheets."""

    @property
    def step_time(self) -> StepTimeModel:
        """How long steps take."""
        return self.target.step_time

    def config(
        self, *, max_model_len: int, slo: ServiceLevel, limits: "Limits", has_deadlines: bool
    ) -> EngineConfig:
        """Return an engine's settings. Traces have no texts, so that no prefix is cached.

        Parameters
        ----------
        has_deadlines
            Whether requests are refused that would be late; without it they wait, as they do at
            engines without an SLO.
        """
        max_queue_seconds = limits.max_queue_seconds if has_deadlines else _LONG_QUEUE_SECONDS
        return EngineConfig(
            model=ModelConfig(max_model_len=max_model_len),
            cache=CacheConfig(
                block_size=BLOCK_SIZE, enable_prefix_caching=False, max_num_blocks=self.num_blocks
            ),
            scheduler=SchedulerConfig(
                max_num_seqs=MAX_NUM_SEQS, max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS
            ),
            admission=AdmissionConfig(
                admission_ceiling=limits.admission,
                background_ceiling=min(limits.background, limits.admission),
                slo_time_to_first_token=slo.first_token_seconds if has_deadlines else None,
                slo_time_per_output_token=slo.per_token_seconds,
                max_queue_seconds=max_queue_seconds,
            ),
            executor=ExecutorConfig(simulate=self.target.device, model_shape=self.target.model),
        )


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The resource's `memoryPressure` and `admission`, as shares and seconds."""

    target: float = 0.75
    background: float = 0.8
    admission: float = 0.95
    max_queue_seconds: float = 30.0
    cold_start_queue_seconds: float = 300.0
    max_queued_requests: int = 1000
    drain_seconds: float = 300.0


@dataclass(frozen=True, kw_only=True)
class Unusable:
    """A type that cannot serve, and why."""

    name: str
    reason: str
    per_token_seconds: float | None = None
    """Of a request alone, where that is the reason."""


def make_engine_type(
    gpu_name: str,
    shape_name: str,
    *,
    quantization: Quantization,
    max_model_len: int,
    slo: ServiceLevel,
    dollars_per_hour: float | None = None,
    start_seconds: float = DEFAULT_START_SECONDS,
    num_nodes: int = UNLIMITED,
    spot_hours: float | None = None,
    by_data_sheets: bool = False,
) -> EngineType | Unusable:
    """Make a type of the catalogues' GPU and shape, or say why it can serve nobody.

    Step times are measured ones where quire ships them for this GPU and a model of the same
    network, else estimated.

    Parameters
    ----------
    by_data_sheets
        Estimate them in any case, so that no type is known better than another.

    Raises
    ------
    ConfigError
        There is no such GPU or shape.
    """
    gpu, shape = find_gpu(gpu_name), find_shape(shape_name)
    try:
        num_blocks = count_kv_blocks(
            gpu,
            shape,
            block_size=BLOCK_SIZE,
            max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
            max_num_seqs=MAX_NUM_SEQS,
            quantization=quantization,
        )
    except CapacityError as error:
        return Unusable(name=gpu.name, reason=str(error))
    num_blocks -= 1  # the null block
    if num_blocks * BLOCK_SIZE < max_model_len:
        reason = (
            f"one request of {max_model_len} tokens does not fit: {num_blocks} KV blocks hold"
            f" {num_blocks * BLOCK_SIZE} tokens"
        )
        return Unusable(name=gpu.name, reason=reason)
    is_known = quantization == "none" and not by_data_sheets
    shipped = find_shipped(gpu.name, shape) if is_known else None
    if shipped is not None:
        step_time = shipped.step_time
    else:
        step_time = estimate_step_time(gpu, shape, quantization=quantization)
    alone = step_time.predict(1, 1)
    if alone > slo.per_token_seconds:
        reason = (
            f"one request alone takes {milliseconds(alone)} a token, and"
            f" the SLO asks for {milliseconds(slo.per_token_seconds)}"
        )
        return Unusable(name=gpu.name, reason=reason, per_token_seconds=alone)
    target = SimulationTarget(
        device=gpu.name,
        model=shape.name,
        vocab_size=shape.vocab_size,
        max_model_len=shape.max_model_len,
        step_time=step_time,
        count_blocks=lambda: num_blocks,
    )
    return EngineType(
        name=gpu.name,
        target=target,
        num_blocks=num_blocks,
        dollars_per_hour=gpu.dollars_per_hour if dollars_per_hour is None else dollars_per_hour,
        start_seconds=start_seconds,
        num_nodes=num_nodes,
        spot_hours=spot_hours,
        is_measured=shipped is not None,
    )
