"""All that a scaling decision is made from.

Plain figures, so that a cluster, processes on one machine and a simulation in virtual time can all
fill them in. Times are seconds of one clock that goes on through restarts, such as the epoch's; a
figure that was not heard is None or missing, never zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from quire_engine.profiles.step_time import StepTimeModel
from quire_engine.protocol.state import EngineState

Mode = Literal["Auto", "External", "Recommend"]


@dataclass(frozen=True, kw_only=True)
class Capability:
    """What one replica holds, and how fast it steps."""

    step_time: StepTimeModel
    num_blocks: int
    """KV blocks that requests can use."""
    block_size: int
    """Tokens of a block."""
    max_num_seqs: int
    """Most requests that run at a time."""
    max_step_tokens: int
    """Most tokens of a step."""


@dataclass(frozen=True, kw_only=True)
class ServiceLevel:
    """What is promised; None: nothing."""

    first_token_seconds: float | None = None
    per_token_seconds: float | None = None
    percentile: int = 95
    """Of how many percent of the requests."""


@dataclass(frozen=True, kw_only=True)
class MemoryPressure:
    """The resource's `memoryPressure`, in (0, 1]."""

    target: float = 0.75
    """Pressure that the fleet is sized for: of blocks, a share of those up to `admission`."""
    background: float = 0.8
    admission: float = 0.95
    """Share of an engine's blocks up to which interactive requests are admitted."""


@dataclass(frozen=True, kw_only=True)
class AcceleratorInputs:
    """One accelerator of a service."""

    name: str
    products: tuple[str, ...] = ()
    """Which GPUs it may be; services that name the same compete for them. Empty: needs none."""
    gpus_per_replica: int = 1
    cost_per_hour: float | None = None
    """Of one replica; None: not known."""
    min_replicas: int = 0
    max_replicas: int = 10
    provision_timeout_seconds: float = 180.0
    """How long a replica may wait for a node before others stand in for it."""
    expected: Capability | None = None
    """From a shipped profile or data sheets, until an engine has run; None: nothing is known."""
    unusable_because: str = ""
    """Why it can serve nobody (the model does not fit); empty: it can."""
    short_since: float | None = None
    """Since when no node was found, as status says it: for a memory that is new."""
    made_of: str = ""
    """Stands for what its pods are made of: failures of others say nothing of these."""


@dataclass(frozen=True, kw_only=True)
class LeavingInputs:
    """An accelerator that the spec has no more, of which replicas are there yet."""

    name: str
    replicas: int
    """Asked for now."""
    products: tuple[str, ...] = ()
    """As `AcceleratorInputs.products`."""


@dataclass(frozen=True, kw_only=True)
class EngineFigures:
    """What an engine said last."""

    age_seconds: float
    """How long ago that was."""
    pressure: float
    """Its largest term; 1 is where interactive requests are refused."""
    binding: str = "blocks"
    """Which term that is."""
    num_held_blocks: int = 0
    num_reserved_blocks: int = 0
    num_blocks: int = 0
    num_running: int = 0
    num_waiting: int = 0
    is_draining: bool = False
    capability: Capability | None = None
    """As it measured itself; None: it has not yet."""


@dataclass(frozen=True, kw_only=True)
class Replica:
    """One engine pod or process of a service."""

    name: str
    accelerator: str
    is_scheduled: bool = True
    """Whether it has a node."""
    is_ready: bool = True
    is_missed: bool = False
    """Its node is missed, whose kubelet said last that it is ready: it may well serve on."""
    is_failing: bool = False
    """It ended again and again, or cannot start: nothing is to be expected of it."""
    is_ending: bool = False
    """It is on its way out: it counts no more."""
    waiting_since: float | None = None
    """Since when no node is found for it; None: it has one, or was not looked at yet."""
    engine: EngineFigures | None = None
    """None: nothing was ever heard of it."""


@dataclass(frozen=True, kw_only=True)
class GatewayFigures:
    """What one gateway counted of one service, since that gateway started."""

    gateway: str
    """Its name: another process has another one."""
    age_seconds: float = 0.0
    """How long ago it said so."""
    seconds: float
    """How long it has been counting."""
    prompt_bounds: tuple[int, ...]
    """Tokens: the largest of each bucket but the last."""
    output_bounds: tuple[int, ...]
    arrivals: tuple[int, ...]
    """New requests by length of the prompt; what clients' libraries sent again is not in it."""
    ended: tuple[tuple[int, ...], ...]
    """Answered requests by lengths of prompt and of output."""
    prompt_tokens: int = 0
    """Of the answered."""
    output_tokens: int = 0
    cached_tokens: int = 0
    """Of the prompts', those that were not computed."""
    num_unserved: int = 0
    """Interactive requests that were refused for want of room, each once."""
    num_first_token_met: int = 0
    num_first_token_missed: int = 0
    num_per_token_met: int = 0
    num_per_token_missed: int = 0
    num_waiting: int = 0
    """Interactive requests in its queue now."""
    num_background_waiting: int = 0
    oldest_seconds: float = 0.0
    """Age of the oldest interactive one."""


@dataclass(frozen=True, kw_only=True)
class ServiceInputs:
    """One service."""

    key: str
    """namespace/name"""
    mode: Mode = "Auto"
    is_suspended: bool = False
    priority: int = 0
    """Those with higher ones get GPUs first."""
    min_replicas: int = 1
    max_replicas: int = 10
    first_replicas: int = 1
    """With how many it begins."""
    max_cost_per_hour: float | None = None
    slo: ServiceLevel = ServiceLevel()
    pressure: MemoryPressure = MemoryPressure()
    max_queue_seconds: float = 30.0
    scale_to_zero_after_seconds: float | None = None
    """None: never."""
    up_seconds: float = 0.0
    """How long more must have been wanted."""
    down_seconds: float = 300.0
    accelerators: tuple[AcceleratorInputs, ...]
    leaving: tuple[LeavingInputs, ...] = ()
    """Accelerators that are none of these any more; their replicas are among `replicas`."""
    replicas: tuple[Replica, ...] = ()
    ordered: Mapping[str, int] = field(default_factory=dict)
    """Replicas that are asked for now, by accelerator, those that are not there yet included."""
    is_new: bool = False
    """Whether nothing was ever ordered for it."""
    is_rolling_out: bool = False
    """Whether replicas are being replaced by ones with other settings: none is taken away then."""
    gateways: tuple[GatewayFigures, ...] = ()
    """Of those that answered."""
    num_gateways: int = 1
    """Those that there are, whether they answered or not."""


@dataclass(frozen=True, kw_only=True)
class GpuStock:
    """GPUs of one product."""

    product: str
    num_gpus: int
    """On nodes that are ready, taken ones included."""
    is_final: bool = False
    """Whether there can never be more: no node autoscaler brings any."""


@dataclass(frozen=True, kw_only=True)
class ScalingInputs:
    """All services at one moment."""

    now: float
    services: tuple[ServiceInputs, ...]
    stock: tuple[GpuStock, ...] = ()
    """By product; what is not named has no limit until it is found short."""
    stale_seconds: float = 20.0
    """What was heard longer ago is not used."""
    retry_accelerator_seconds: float = 600.0
    """After so long an accelerator without nodes is tried again."""


def engine_figures(state: EngineState, silent_seconds: float) -> EngineFigures:
    """Take what scaling needs from an engine's own account.

    Parameters
    ----------
    silent_seconds
        How long ago the state came.
    """
    blocks, seats = state.blocks, state.sequences
    pressure = state.pressure
    return EngineFigures(
        age_seconds=silent_seconds,
        pressure=pressure.value if pressure else 0.0,
        binding=pressure.binding if pressure else "blocks",
        num_held_blocks=blocks.held,
        num_reserved_blocks=blocks.reserved,
        num_blocks=blocks.total,
        num_running=seats.running,
        num_waiting=seats.waiting,
        is_draining=state.is_draining,
        capability=_capability(state),
    )


def _capability(state: EngineState) -> Capability | None:
    if state.step_time is None or state.blocks.total < 1 or state.sequences.slots < 1:
        return None
    return Capability(
        step_time=state.step_time,
        num_blocks=state.blocks.total,
        block_size=state.tokens_per_block,
        max_num_seqs=state.sequences.slots,
        max_step_tokens=state.max_step_tokens or 2048,
    )
