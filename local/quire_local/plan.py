"""`quire plan`: the cheapest GPUs for some traffic, computed and not simulated.

For each window of the traffic the cheapest mix that keeps the promises at the target, by the
operator's own program: as if the traffic were known beforehand and replicas came at once. Beside it
the best of each single type, and the mix for the mean of all.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean

import msgspec

from quire_engine.__main__ import report_errors
from quire_local.parser import Parser
from quire_local.simulate.bursts import BURST_SECONDS, find_burst
from quire_local.simulate.flags import (
    add_service_flags,
    add_traffic_flags,
    duration,
    limits_of,
    max_model_len_of,
    say,
    slo_of,
    types_of,
    workload_of,
)
from quire_local.simulate.hardware import EngineType, Limits, ServiceLevel
from quire_local.simulate.idle import OF_A_PLAN, find_idle, refuse_idle
from quire_local.simulate.outputs import check_outputs, write_output
from quire_local.simulate.progress import Progress
from quire_local.simulate.promises import check_promises
from quire_local.simulate.sizing import (
    ACCEPTED,
    WINDOW_SECONDS,
    SizedWindow,
    count_unserved,
    measure_capacity,
    served_share,
    size,
    size_windows,
    split_by_length,
)
from quire_local.simulate.workload import Workload
from quire_local.words import counted, rounded, share
from quire_operator.scaling.capacity import Capacity

_EPILOG = """\
examples:
  quire plan --generate diurnal --quantization int4 --slo-time-per-output-token 120ms
  quire plan --trace trace.csv --gpu l4=20,h100=2@6.50 --window 15s --windows

exit status:
  0  there is a plan, also where it does not serve all requests as promised: a line says so
  2  there is none: wrong flags or files, or promises that no GPU keeps for any request
"""


def main(argv: Sequence[str]) -> int:
    """Plan and report; the exit status is returned."""
    return report_errors(lambda: _plan(argv))


def _plan(argv: Sequence[str]) -> int:
    parsed = _parser().parse_args(argv)
    check_outputs(parsed.json)
    refuse_idle(find_idle(argv, parsed, OF_A_PLAN))
    max_model_len = max_model_len_of(parsed)
    types, remarks = types_of(parsed, max_model_len=max_model_len)
    workload = workload_of(parsed, max_model_len)
    slo, limits = slo_of(parsed), limits_of(parsed)
    print(say([*remarks, *workload.remarks]), end="", file=sys.stderr)
    check_promises(workload, types, slo, limits)
    sized, singles = _size(workload, types, slo, limits, parsed.window)
    print(_describe(workload, types, slo, limits))
    print(_compare(sized, singles))
    print(_burst_hint(workload, sized) or _next_step(sized))
    if parsed.windows:
        print(_list(sized))
    if parsed.json is not None:
        document = {
            "mix": [asdict(one) for one in sized],
            "singles": {name: [asdict(one) for one in each] for name, each in singles.items()},
        }
        figures = msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
        write_output(parsed.json, figures)
    return 0


def _size(
    workload: Workload,
    types: Sequence[EngineType],
    slo: ServiceLevel,
    limits: Limits,
    window_seconds: float,
) -> tuple[list[SizedWindow], dict[str, list[SizedWindow]]]:
    """Size the windows with all types, and with each alone."""
    progress = Progress("quire plan", sys.stderr, of="all windows")
    choices = [types, *([kind] for kind in types)]

    def size_nth(number: int) -> list[SizedWindow]:
        return size_windows(
            workload.trace,
            choices[number],
            slo,
            limits=limits,
            window_seconds=window_seconds,
            progress=lambda share: progress((number + share) / len(choices)),
        )

    found = [size_nth(number) for number in range(len(choices))]
    progress.end()
    return found[0], {kind.name: one for kind, one in zip(types, found[1:], strict=True)}


def _describe(
    workload: Workload, types: Sequence[EngineType], slo: ServiceLevel, limits: Limits
) -> str:
    """What is asked, what each type does of it, and the mix for its mean."""
    seconds = max(workload.seconds, 1.0)
    buckets = split_by_length(workload.trace, seconds)
    asked = (
        f"{workload.name}: {counted(len(workload.trace), 'request')} in {seconds:.0f} s,"
        f" {rounded(workload.requests_per_second)} a second"
    )
    lengths = (
        f"on the mean {fmean(one.num_prompt_tokens for one in workload.trace):.0f} tokens of prompt"
        f" and {fmean(one.num_output_tokens for one in workload.trace):.0f} of output"
    )
    header = f"{'GPU':10}{'$ / hour':>9}{'requests/s':>12}{'$ / 1000':>10}"
    lines = [asked, lengths, "", f"{header}  {'step times':12}runs out first"]
    for kind in types:
        source = "measured" if kind.is_measured else "data sheet"
        found = measure_capacity(kind, buckets, slo, limits)
        if isinstance(found, Capacity):
            price = kind.dollars_per_hour / 3.6 / found.requests_per_second
            short = not found.loads.are_served.all()
            note = ", not for the longest prompts" if short else ""
            lines.append(
                f"{kind.name:10}{kind.dollars_per_hour:9.2f}{found.requests_per_second:12.2f}"
                f"{price:10.3f}  {source:12}{found.binding}{note}"
            )
        else:
            lines.append(
                f"{kind.name:10}{kind.dollars_per_hour:9.2f}{'-':>12}{'-':>10}  {source:12}"
                f"{found.reason}"
            )
    mix = size(types, buckets, slo, limits=limits)
    left = count_unserved(mix, buckets)
    unserved = f"; {left:.2%} of the requests are served by none" if left > 1e-4 else ""
    lines += [
        "",
        f"for the mean of all traffic: {_words(mix.replicas)}, ${mix.cost:.2f} an hour{unserved}",
    ]
    if sum(1 for count in mix.replicas.values() if count) > 1:
        lines.append(
            "requests/s are of replicas that get prompts of all lengths: beside faster ones, which"
            " get the long ones, they do more"
        )
    return "\n".join(lines) + "\n"


def _compare(sized: Sequence[SizedWindow], singles: Mapping[str, Sequence[SizedWindow]]) -> str:
    """The mix of each window against single types."""
    hours = sum(one.seconds for one in sized) / 3600
    total = sum(one.dollars for one in sized)
    peak = max(sized, key=lambda one: one.dollars_per_hour)
    able = {
        name: sum(one.dollars for one in windows)
        for name, windows in singles.items()
        if served_share(windows) >= 1.0 - ACCEPTED
    }
    lines = [f"anew for each window: ${total / hours:.2f} an hour, ${total:.2f} in all"]
    if (served := served_share(sized)) < 1.0 - 1e-4:
        lines.append(f"only {share(served)} of the requests can be served as promised")
    lines.append(f"at the most: {_words(peak.replicas)}, ${peak.dollars_per_hour:.2f} an hour")
    if able:
        best = min(able, key=lambda name: able[name])
        lines.append(
            f"the best single type, {best}: ${able[best]:.2f}, so the mix is"
            f" {total / able[best] if able[best] else 1.0:.2f} of it"
        )
    for name, windows in singles.items():
        if name not in able:
            lines.append(f"{name} alone serves {share(served_share(windows))} as promised")
    return "\n".join(lines)


def _burst_hint(workload: Workload, sized: Sequence[SizedWindow]) -> str:
    """What the means of windows hide, and what to ask instead; empty where they hide nothing."""
    burst = find_burst(workload.trace, sized)
    if burst is None:
        return ""
    seconds = f"{BURST_SECONDS:.0f}"
    return (
        f"bursts: {burst.num_requests} requests come within {seconds} s at second {burst.at:.0f},"
        f" where the mean of the window is {burst.usual:.1f}, and no replica starts as fast:"
        f" --window {seconds}s plans for the peaks, quire simulate --scaler fixed tries it"
    )


def _next_step(sized: Sequence[SizedWindow]) -> str:
    """What a plan does not know, and the command that does: the mix for the mean is no advice."""
    peak = max(sized, key=lambda one: one.dollars_per_hour)
    fixed = ",".join(f"{name}={number}" for name, number in peak.replicas.items() if number)
    tried = f"; --scaler fixed --fixed {fixed} tries the dearest window's mix" if fixed else ""
    return (
        "starts, queues and bursts within a window are not in it: quire simulate with the same"
        f" traffic, model and promises says what is kept{tried}"
    )


def _list(sized: Sequence[SizedWindow]) -> str:
    rows = [
        f"{one.at:9.0f}{one.requests_per_second:12.2f}{one.dollars_per_hour:10.2f}"
        f"  {_words(one.replicas)}"
        for one in sized
    ]
    return "\n".join(["", f"{'second':>9}{'requests/s':>12}{'$ / hour':>10}  replicas", *rows])


def _words(replicas: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in replicas.items() if count) or "none"


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="quire plan",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_traffic_flags(parser)
    add_service_flags(parser, simulates=False)
    output = parser.add_argument_group("output")
    output.add_argument(
        "--window",
        type=duration,
        default=WINDOW_SECONDS,
        metavar="TIME",
        help="so often the mix may change [5m]",
    )
    output.add_argument("--windows", action="store_true", help="list the mix of each window")
    output.add_argument("--json", type=Path, metavar="FILE", help="all windows")
    return parser
