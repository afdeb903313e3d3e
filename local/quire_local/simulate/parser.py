"""The flags of `quire simulate`."""

import argparse
from pathlib import Path
from typing import NoReturn

from quire_engine.errors import ConfigError
from quire_local.numbers import count, gateway_count, number_from
from quire_local.parser import Parser
from quire_local.simulate.faults import Event, parse_event
from quire_local.simulate.flags import (
    add_service_flags,
    add_traffic_flags,
    duration,
    names,
    pairs,
)
from quire_local.simulate.scalers.choosing import NAMES
from quire_local.simulate.simulation import DEFAULT_MAX_TOKENS

_HOURS = number_from(0.001, 1e6)
"""Between faults; where there are to be none, the flag is left out."""
_DEFAULT_SCALERS = ["quire", "keda", "oracle"]
_DESCRIPTION = """\
What traffic would cost, and how it would be served, before anything is bought.

Engines are simulated in virtual time with the real scheduler, admission, routing and scaling.
"""
_EPILOG = """\
examples:
  quire simulate --generate diurnal --seconds 2h --scaler quire,keda,oracle --html page.html
  quire simulate --trace trace.csv --gpu l4=20,h100=2@6.50 --slo-time-per-output-token 120ms
  quire simulate --generate poisson --scaler fixed --fixed a10g=5 --event 600:vanish:a10g
  quire simulate --services services.yaml --gpu l4=6,a100-80=2 --seconds 30m

exit status:
  0  it was simulated, also where promises are broken: the last line says whose
  2  it cannot be: wrong flags or files, or promises that no GPU keeps for any request
"""


class EntryParser(Parser):
    """Of a service's flags in a file: what is wrong with them is no command line's error."""

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError."""
        raise ConfigError(message)


def _event(text: str) -> Event:
    try:
        return parse_event(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _scalers(text: str) -> list[str]:
    found = names(text)
    unknown = [name for name in found if name not in NAMES]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"there is no {', '.join(unknown)}: choose of {', '.join(NAMES)}"
        )
    return found


def make_parser(parser_class: type[Parser] = Parser) -> Parser:
    """Make the parser of `quire simulate`."""
    parser = parser_class(
        prog="quire simulate",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_traffic_flags(parser)
    add_service_flags(parser, simulates=True)
    parser.add_argument(
        "--max-tokens",
        type=count,
        default=DEFAULT_MAX_TOKENS,
        metavar="N",
        help=f"what every client asks for [{DEFAULT_MAX_TOKENS}]",
    )
    parser.add_argument(
        "--services",
        type=Path,
        metavar="FILE",
        help="several services on the same GPUs, scaled by quire: a YAML list, each with name,"
        " priority and flags of its own, such as `- {name: chat, generate: diurnal}`",
    )
    _add_scaling_flags(parser)
    _add_fault_flags(parser)
    output = parser.add_argument_group("output")
    output.add_argument("--json", type=Path, metavar="FILE", help="all figures")
    output.add_argument("--html", type=Path, metavar="FILE", help="a page of charts")
    return parser


def _add_scaling_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("scaling")
    group.add_argument(
        "--scaler",
        type=_scalers,
        default=_DEFAULT_SCALERS,
        metavar="NAME,...",
        help=f"who scales, one after the other: {', '.join(NAMES)} [quire,keda,oracle]",
    )
    group.add_argument(
        "--fixed",
        type=pairs(count),
        default={},
        metavar="GPU=N,...",
        help="replicas of the scaler fixed",
    )
    group.add_argument("--min-replicas", type=count, default=1, metavar="N", help="[1]")
    group.add_argument("--max-replicas", type=count, default=1000, metavar="N", help="[1000]")
    group.add_argument(
        "--max-cost-per-hour",
        type=number_from(0.0001, 1e9),
        metavar="DOLLARS",
        help="most that quire spends",
    )
    group.add_argument("--gateways", type=gateway_count, default=1, metavar="N", help="[1]")


def _add_fault_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("faults")
    group.add_argument(
        "--fail-hours",
        type=_HOURS,
        metavar="H",
        help="each replica dies once in so many hours [never]",
    )
    group.add_argument(
        "--spot",
        type=pairs(_HOURS),
        default={},
        metavar="GPU=HOURS,...",
        help="the cloud wants replicas of a type back, each once in so many hours [never]",
    )
    group.add_argument(
        "--restart-operator",
        type=duration,
        metavar="TIME",
        help="so often the operator begins anew, and has forgotten everything",
    )
    group.add_argument(
        "--event",
        type=_event,
        action="append",
        default=[],
        metavar="SECONDS:KIND:GPU[:SHARE]",
        help="kill, reclaim, vanish, return, silence or speak, such as 600:reclaim:l4:0.5; may be"
        " given several times",
    )
