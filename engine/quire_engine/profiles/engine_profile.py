"""What was measured of one engine: a file that others predict and simulate it from.

`quire profile` writes one, an engine keeps its own from start to start, and `--simulate FILE` loads
it. The steps that were measured are in it beside the model that was fitted to them, so that a
later version can fit anew.
"""

import math
from dataclasses import dataclass
from statistics import median
from typing import Literal

import msgspec

from quire_engine.errors import ConfigError
from quire_engine.profiles.step_time import StepTimeModel, VersionedModel

PROFILE_VERSION = 1
MAX_BYTES = 16 << 20
"""A larger file is none."""


_SIZES = (
    "max_model_len",
    "vocab_size",
    "num_blocks",
    "block_size",
    "max_num_seqs",
    "max_num_batched_tokens",
)
_MAX_SIZE = 1 << 24
"""More than any engine has: a file that says so is damaged, and would take all memory."""


class MeasuredStep(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of step, and how long it took each time."""

    num_decodes: int
    context_tokens: int
    """Of all decodes together."""
    prefill_tokens: int
    prefill_pairs: int
    samples: tuple[float, ...]
    """Seconds, in the order of measurement."""

    @property
    def seconds(self) -> float:
        """The median."""
        return median(self.samples)

    def __post_init__(self) -> None:
        work = (self.num_decodes, self.context_tokens, self.prefill_tokens, self.prefill_pairs)
        if min(work) < 0 or not self.samples:
            raise ConfigError("engine profile: a step needs samples, and no negative work")
        if not all(math.isfinite(value) and value > 0 for value in self.samples):
            raise ConfigError("engine profile: seconds of steps must be finite and above 0")


class EngineProfile(msgspec.Struct, frozen=True, kw_only=True):
    """One model on one device with one set of limits, measured.

    Raises
    ------
    ConfigError
        A size is below 1, or a step or the model is impossible.
    """

    device: str
    """What computed, in words."""
    model: str
    """The model's name."""
    max_model_len: int
    vocab_size: int
    num_blocks: int
    """KV blocks that requests could use."""
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    step_time: StepTimeModel
    steps: tuple[MeasuredStep, ...] = ()
    profile_version: int = PROFILE_VERSION

    def __post_init__(self) -> None:
        for name in _SIZES:
            if not 1 <= getattr(self, name) <= _MAX_SIZE:
                raise ConfigError(f"engine profile: {name} must be from 1 to {_MAX_SIZE}")


class DecodeRate(msgspec.Struct, frozen=True, kw_only=True):
    """A decode step as it was measured."""

    num_decodes: int
    context_tokens: int
    """Of all decodes together."""
    seconds: float
    """The median."""


class CalibrationReport(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine came to the step times that it began with."""

    status: Literal["measured", "stored", "off", "failed"]
    """Measured at this start, or at an earlier one and checked now; off and failed: nothing was
    known, and step times are learnt from those of requests alone."""
    detail: str = ""
    """Why it failed."""
    seconds: float = 0.0
    """What it took of the start."""
    num_steps: int = 0
    """Steps behind the model."""
    prefill_tokens_per_second: float | None = None
    """The highest of the prompts that were measured."""
    decode_steps: tuple[DecodeRate, ...] = ()
    """Over batch and context."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The step times that an engine begins with."""

    report: CalibrationReport
    step_time: StepTimeModel | None = None


def measure_prefill_rate(steps: tuple[MeasuredStep, ...]) -> float | None:
    """Tokens per second of the prompts that went fastest; None without prompts."""
    rates = [step.prefill_tokens / step.seconds for step in steps if not step.num_decodes]
    return max(rates, default=None)


def list_decode_rates(steps: tuple[MeasuredStep, ...]) -> tuple[DecodeRate, ...]:
    """The steps of decodes alone."""
    return tuple(
        DecodeRate(
            num_decodes=step.num_decodes,
            context_tokens=step.context_tokens,
            seconds=step.seconds,
        )
        for step in steps
        if not step.prefill_tokens
    )


def save_profile(profile: EngineProfile) -> bytes:
    """Encode a profile as JSON for people."""
    return msgspec.json.format(msgspec.json.encode(profile), indent=1) + b"\n"


def load_profile(data: bytes) -> EngineProfile:
    """Decode a profile; unknown fields are ignored.

    Raises
    ------
    ConfigError
        It is none, of a newer version, or what it says is impossible.
    """
    if len(data) > MAX_BYTES:
        raise ConfigError(f"engine profile: more than {MAX_BYTES} bytes are too many for one")
    try:
        version = msgspec.json.decode(data, type=_Versioned).profile_version
        if version != PROFILE_VERSION:
            raise ConfigError(
                f"engine profile: version {version} is not supported, only {PROFILE_VERSION}"
            )
        msgspec.json.decode(data, type=_WithModel).step_time.check()
        return msgspec.json.decode(data, type=EngineProfile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"engine profile: {error}") from error


class _Versioned(msgspec.Struct):
    """Read first, for a profile of the future may look otherwise in everything else."""

    profile_version: int


class _WithModel(msgspec.Struct):
    """Read next: the model's schema has a number of its own."""

    step_time: VersionedModel
