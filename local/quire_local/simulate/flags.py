"""What `quire simulate` and `quire plan` have in common on the command line."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TypeVar, get_args

from quire_engine.errors import ConfigError
from quire_engine.profiles.gpus import GPUS, find_gpu
from quire_engine.profiles.shapes import SHAPES, Quantization, find_shape
from quire_local.numbers import count, number_from
from quire_local.simulate.hardware import (
    DEFAULT_START_SECONDS,
    UNLIMITED,
    EngineType,
    Limits,
    ServiceLevel,
    Unusable,
    make_engine_type,
)
from quire_local.simulate.workload import (
    KINDS,
    Workload,
    generate_workload,
    prepare,
    read_workload,
)
from quire_local.words import plain
from quire_operator.planner.durations import seconds as parse_duration
from quire_operator.planner.memory import shape_of_source

DEFAULT_GPUS = "t4,l4,a10g,a100-80,h100,h200"
_LONGEST_DEFAULT = 16_384
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class GpuChoice:
    """A type as the command line names it: GPU[=NODES][@DOLLARS]."""

    name: str
    num_nodes: int = UNLIMITED
    dollars_per_hour: float | None = None

    def __str__(self) -> str:
        """As the command line names it."""
        nodes = "" if self.num_nodes == UNLIMITED else f"={self.num_nodes}"
        price = "" if self.dollars_per_hour is None else f"@{plain(self.dollars_per_hour)}"
        return f"{self.name}{nodes}{price}"


def duration(text: str) -> float:
    """Seconds of a time such as 90s, 60ms or 1h30m; a plain number is seconds."""
    try:
        value = float(text) if text.replace(".", "", 1).isdecimal() else parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time above 0")
    return value


def _percentile(text: str) -> int:
    """A whole number from 50 to 99."""
    if not text.isdecimal() or not 50 <= int(text) <= 99:
        raise argparse.ArgumentTypeError(f'"{text}" is no whole number from 50 to 99')
    return int(text)


def names(text: str) -> list[str]:
    """Names between commas."""
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found:
        raise argparse.ArgumentTypeError("names none")
    if len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"{text!r} names one twice")
    return found


def _model(text: str) -> str:
    """A shape's name; a repository's on the hub, such as Qwen/Qwen3-8B, says it as in a service."""
    known = shape_of_source(f"hf://{text.removeprefix('hf://')}")
    try:
        return (known or find_shape(text)).name
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def gpu_choices(text: str) -> list[GpuChoice]:
    """Types between commas: l4, l4=8 (nodes at most), h100@6.50 (dollars an hour)."""
    chosen = [_gpu_choice(part) for part in names(text)]
    if len({one.name for one in chosen}) < len(chosen):
        raise argparse.ArgumentTypeError(f"{text!r} names a GPU twice")
    return chosen


def _gpu_choice(text: str) -> GpuChoice:
    name_and_nodes, _, price = text.partition("@")
    name, _, nodes = name_and_nodes.partition("=")
    try:
        gpu = find_gpu(name)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return GpuChoice(
        name=gpu.name,
        num_nodes=count(nodes) if nodes else UNLIMITED,
        dollars_per_hour=number_from(0.0001, 1e6)(price) if price else None,
    )


def pairs(take: Callable[[str], T]) -> Callable[[str], dict[str, T]]:
    """NAME=VALUE between commas; `take` reads a value."""

    def read(text: str) -> dict[str, T]:
        found = {}
        for part in names(text):
            name, _, value = (side.strip() for side in part.partition("="))
            if name in found:
                raise argparse.ArgumentTypeError(f"{text!r} names {name} twice")
            found[name] = take(value)
        return found

    return read


def add_traffic_flags(parser: argparse.ArgumentParser) -> None:
    """Flags that say what is asked."""
    group = parser.add_argument_group("traffic")
    group.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="a recorded trace: CSV with TIMESTAMP,ContextTokens,GeneratedTokens (Azure), or lines"
        ' of {"arrival_seconds": 0.5, "prompt_tokens": 374, "output_tokens": 44}',
    )
    group.add_argument("--generate", choices=KINDS, help="generated traffic in its place")
    group.add_argument(
        "--requests-per-second",
        type=number_from(1e-6, 1e6),
        default=5.0,
        metavar="R",
        help="mean rate of generated traffic [5]",
    )
    group.add_argument(
        "--seconds",
        type=duration,
        metavar="TIME",
        help="how long, such as 30m; of a trace its first so many [generated: 1h, a trace: all]",
    )
    group.add_argument(
        "--times",
        type=number_from(1e-4, 1e4),
        default=1.0,
        metavar="X",
        help="so many times as many requests, in the same time [1]",
    )
    group.add_argument(
        "--skip-bad-rows", action="store_true", help="leave wrong rows of the trace out"
    )
    group.add_argument("--seed", type=int, default=0, metavar="N", help="of all chance [0]")


def add_service_flags(parser: argparse.ArgumentParser, *, simulates: bool) -> None:
    """Flags that say what serves, and what is promised.

    Parameters
    ----------
    simulates
        Whether replicas start and requests are counted: a plan has no use for flags of these.
    """
    group = parser.add_argument_group("model and GPUs")
    group.add_argument(
        "--model",
        type=_model,
        default="llama3-8b",
        metavar="SHAPE",
        help=f"one of {', '.join(SHAPES)}, or its repository on the hub, such as Qwen/Qwen3-8B"
        " [llama3-8b]",
    )
    group.add_argument(
        "--quantization",
        choices=get_args(Quantization),
        default="none",
        help="of the weights [none: bfloat16]",
    )
    group.add_argument(
        "--max-model-len",
        type=count,
        metavar="N",
        help=f"most tokens of a request [the model's, {_LONGEST_DEFAULT} at most]",
    )
    group.add_argument(
        "--gpu",
        type=gpu_choices,
        default=gpu_choices(DEFAULT_GPUS),
        metavar="GPU[=NODES][@DOLLARS],...",
        help=f"types that there are: {', '.join(GPUS)}; how many nodes at most, and what a replica"
        f" costs an hour [{DEFAULT_GPUS}]",
    )
    if simulates:
        group.add_argument(
            "--start-seconds",
            type=duration,
            default=DEFAULT_START_SECONDS,
            metavar="TIME",
            help="from an order to a ready replica [90s]",
        )
    promised = parser.add_argument_group("promises")
    promised.add_argument(
        "--slo-time-to-first-token", type=duration, default=2.0, metavar="TIME", help="[2s]"
    )
    promised.add_argument(
        "--slo-time-per-output-token", type=duration, default=0.06, metavar="TIME", help="[60ms]"
    )
    if simulates:
        promised.add_argument(
            "--percentile",
            type=_percentile,
            default=ServiceLevel.percentile,
            metavar="P",
            help="of how many percent of the requests, 50 to 99 [95]",
        )
    else:
        parser.set_defaults(start_seconds=DEFAULT_START_SECONDS, percentile=ServiceLevel.percentile)
    promised.add_argument(
        "--target",
        type=number_from(1, 100),
        default=75.0,
        metavar="PERCENT",
        help="part of what admission lets in, of seats and of time, that the fleet is sized for:"
        " memoryPressure.target [75]",
    )
    promised.add_argument(
        "--admission",
        type=number_from(1, 100),
        default=95.0,
        metavar="PERCENT",
        help="blocks up to which requests are admitted: memoryPressure.admission [95]",
    )


def workload_of(parsed: argparse.Namespace, max_model_len: int) -> Workload:
    """Read or generate the traffic.

    Raises
    ------
    ConfigError
        There is none, or something is wrong with it.
    """
    if parsed.trace is not None and parsed.generate is not None:
        raise ConfigError("--trace and --generate both say what is asked: leave one of them out")
    if parsed.trace is None and parsed.generate is None:
        raise ConfigError(
            f"say what is asked: --trace FILE, or --generate with one of {', '.join(KINDS)}"
        )
    if parsed.trace is not None:
        workload = read_workload(parsed.trace, skips_bad_rows=parsed.skip_bad_rows)
    else:
        workload = generate_workload(
            parsed.generate,
            requests_per_second=parsed.requests_per_second,
            seconds=parsed.seconds or 3600.0,
            seed=parsed.seed,
        )
    return prepare(
        workload,
        times=parsed.times,
        seconds=parsed.seconds,
        max_model_len=max_model_len,
        seed=parsed.seed,
    )


def max_model_len_of(parsed: argparse.Namespace) -> int:
    """Most tokens of a request.

    Raises
    ------
    ConfigError
        The model takes fewer than asked for, or is not known.
    """
    shape = find_shape(parsed.model)
    if parsed.max_model_len is None:
        return min(shape.max_model_len, _LONGEST_DEFAULT)
    if parsed.max_model_len > shape.max_model_len:
        raise ConfigError(
            f"{shape.name} takes {shape.max_model_len} tokens, not {parsed.max_model_len}:"
            " lower --max-model-len"
        )
    return int(parsed.max_model_len)


def slo_of(parsed: argparse.Namespace) -> ServiceLevel:
    """What is promised."""
    return ServiceLevel(
        first_token_seconds=parsed.slo_time_to_first_token,
        per_token_seconds=parsed.slo_time_per_output_token,
        percentile=parsed.percentile,
    )


def limits_of(parsed: argparse.Namespace) -> Limits:
    """How full engines are to be."""
    return Limits(target=parsed.target / 100, admission=parsed.admission / 100)


def types_of(
    parsed: argparse.Namespace,
    *,
    max_model_len: int,
    spot_hours: Mapping[str, float] | None = None,
) -> tuple[list[EngineType], list[str]]:
    """Return the types that can serve, and what to say about the others.

    Raises
    ------
    ConfigError
        None can.
    """
    usable, unusable = [], []
    for choice in parsed.gpu:
        made = make_engine_type(
            choice.name,
            parsed.model,
            quantization=parsed.quantization,
            max_model_len=max_model_len,
            slo=slo_of(parsed),
            dollars_per_hour=choice.dollars_per_hour,
            start_seconds=parsed.start_seconds,
            num_nodes=choice.num_nodes,
            spot_hours=(spot_hours or {}).get(choice.name),
        )
        if isinstance(made, Unusable):
            unusable.append(made)
        else:
            usable.append(made)
    if not usable:
        reasons = "; ".join(f"{one.name}: {one.reason}" for one in unusable)
        raise ConfigError(
            f"no GPU can serve {parsed.model} as promised: {reasons}{_best_of(unusable)}"
        )
    return usable, [f"{one.name} is left out: {one.reason}" for one in unusable]


def _best_of(unusable: Sequence[Unusable]) -> str:
    """The best there is, where promises are what none keeps."""
    times = {one.name: one.per_token_seconds for one in unusable if one.per_token_seconds}
    if not times:
        return ""
    name = min(times, key=lambda one: times[one])
    return (
        f"; the best there is takes {ceil(times[name] * 1e4) / 10:.1f} ms a token ({name}):"
        " raise --slo-time-per-output-token"
    )


def say(remarks: Sequence[str]) -> str:
    """Remarks as lines, or nothing."""
    return "".join(f"note: {remark}\n" for remark in remarks)
