"""`quire plan`: the cheapest GPUs for some traffic, computed and not simulated.

For each window of the traffic the cheapest mix that keeps the promises at the target, by the
operator's own program: as if the traffic were known beforehand and replicas came at once. Beside it
the best of each single type, and the mix for the mean of all.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import msgspec

from quire_engine.__main__ import report_errors
from quire_local.parser import Parser
from quire_local.plan_report import burst_hint, compare, describe, list_windows, next_step
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
from quire_local.simulate.prices import sum_up
from quire_local.simulate.progress import Progress
from quire_local.simulate.promises import check_promises
from quire_local.simulate.sizing import WINDOW_SECONDS, SizedWindow, size_windows
from quire_local.simulate.workload import Workload

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
    print(describe(workload, types, slo, limits))
    print(compare(sized, singles))
    print(burst_hint(workload, sized) or next_step(sized))
    if parsed.windows:
        print(list_windows(sized))
    if parsed.json is not None:
        document = {
            "mix": [asdict(one) for one in sized],
            "singles": {name: [asdict(one) for one in each] for name, each in singles.items()},
            "totals": {
                "mix": asdict(sum_up(sized)),
                "singles": {name: asdict(sum_up(each)) for name, each in singles.items()},
            },
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
