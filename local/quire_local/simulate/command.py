"""`quire simulate`: what traffic would cost, and how it would be served, before anything is bought.

Engines are simulated in virtual time with the real scheduler, admission, routing and scaling.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from quire_engine.__main__ import report_errors
from quire_engine.errors import ConfigError
from quire_local.numbers import count, gateway_count, number_from
from quire_local.parser import Parser
from quire_local.simulate.faults import GATEWAYS, Event, parse_event
from quire_local.simulate.flags import (
    add_service_flags,
    add_traffic_flags,
    duration,
    limits_of,
    max_model_len_of,
    names,
    pairs,
    say,
    slo_of,
    types_of,
    workload_of,
)
from quire_local.simulate.hardware import EngineType, ServiceLevel
from quire_local.simulate.outputs import check_outputs, write_output
from quire_local.simulate.page import write_page
from quire_local.simulate.remarks import remark_on, remark_on_promises
from quire_local.simulate.report import write_json, write_table
from quire_local.simulate.results import SimulationResult
from quire_local.simulate.scalers.choosing import NAMES, Makers
from quire_local.simulate.services_file import read_services
from quire_local.simulate.simulation import DEFAULT_MAX_TOKENS, Scenario, simulate
from quire_local.simulate.sizing import SizedWindow
from quire_local.simulate.workload import Workload, check_length

_DEFAULT_SCALERS = ["quire", "keda", "oracle"]
_EXAMPLES = """\
examples:
  quire simulate --generate diurnal --seconds 2h --scaler quire,keda,oracle --html page.html
  quire simulate --trace trace.csv --gpu l4=20,h100=2@6.50 --slo-time-per-output-token 120ms
  quire simulate --generate poisson --scaler fixed --fixed l4=3 --event 600:vanish:l4
  quire simulate --services services.yaml --gpu l4=6,a100-80=2 --seconds 30m
"""


def main(argv: Sequence[str]) -> int:
    """Simulate and report; the exit status is returned."""
    return report_errors(lambda: _run_command(argv))


def _run_command(argv: Sequence[str]) -> int:
    parsed = _parser().parse_args(argv)
    check_outputs(parsed.json, parsed.html)
    if parsed.services is not None:
        return _simulate_several(parsed, argv)
    return _simulate(parsed)


def _simulate_several(parsed: argparse.Namespace, argv: Sequence[str]) -> int:
    """All services of the file, scaled together."""
    if parsed.scaler not in (_DEFAULT_SCALERS, ["quire"]):
        raise ConfigError("several services are scaled by quire, all in one: leave --scaler out")
    # the operator's scaling is asked for here alone
    from quire_local.simulate.several import Several, SimulatedService

    services, remarks = [], []
    for entry in read_services(parsed.services):
        own = _parser().parse_args([*argv, *entry.flags])
        try:
            scenario, _, own_remarks = _scenario_of(own)
        except ConfigError as error:
            raise ConfigError(f"{parsed.services}: {entry.name}: {error}") from error
        scaler = _makers_of(own, scenario).quire()
        remarks += [f"{entry.name}: {remark}" for remark in own_remarks]
        made = SimulatedService(
            name=entry.name, scenario=scenario, scaler=scaler, priority=entry.priority
        )
        services.append(made)
    several = Several(services)
    title = f"{len(services)} services of {parsed.services}"
    print(say(remarks) + title + "\n", file=sys.stderr)
    found = several.run()
    results = [replace(found[one.name], scaler=one.name) for one in services]
    _report(results, parsed, title=title, remarks=remarks, slo=slo_of(parsed), about="service")
    return 0


def _scenario_of(parsed: argparse.Namespace) -> tuple[Scenario, Workload, list[str]]:
    """What is simulated, and what to say about it."""
    if parsed.min_replicas > parsed.max_replicas:
        raise ConfigError("--min-replicas is more than --max-replicas: lower it or raise the other")
    max_model_len = max_model_len_of(parsed)
    types, remarks = types_of(parsed, max_model_len=max_model_len, spot_hours=parsed.spot)
    _check_names(parsed, [one.name for one in types])
    workload = workload_of(parsed, max_model_len)
    check_length(workload)
    remarks += [*workload.remarks, *remark_on(parsed, types, workload)]
    remarks += remark_on_promises(workload, types, slo_of(parsed), limits_of(parsed))
    return _make_scenario(parsed, workload, types, max_model_len), workload, remarks


def _make_scenario(
    parsed: argparse.Namespace,
    workload: Workload,
    types: Sequence[EngineType],
    max_model_len: int,
) -> Scenario:
    return Scenario(
        trace=workload.trace,
        types=types,
        max_model_len=max_model_len,
        slo=slo_of(parsed),
        limits=limits_of(parsed),
        max_tokens=parsed.max_tokens,
        num_gateways=parsed.gateways,
        fail_hours=parsed.fail_hours,
        events=tuple(parsed.event),
        seed=parsed.seed,
    )


def _makers_of(parsed: argparse.Namespace, scenario: Scenario) -> Makers:
    return Makers(
        scenario=scenario,
        fixed={name: int(value) for name, value in parsed.fixed.items()},
        min_replicas=parsed.min_replicas,
        max_replicas=parsed.max_replicas,
        max_dollars_per_hour=parsed.max_cost_per_hour,
        forgets_after=parsed.restart_operator,
    )


def _simulate(parsed: argparse.Namespace) -> int:
    scenario, workload, remarks = _scenario_of(parsed)
    makers = _makers_of(parsed, scenario)
    title = (
        f"{workload.name}: {len(workload.trace)} requests in {workload.seconds:.0f} s,"
        f" {parsed.model}, quantization {parsed.quantization}"
    )
    print(say(remarks) + title + "\n", file=sys.stderr)
    results = [_run(scenario, makers, name) for name in parsed.scaler]
    lower_bound = makers.windows if parsed.json is not None else ()
    _report(
        results, parsed, title=title, remarks=remarks, slo=scenario.slo, lower_bound=lower_bound
    )
    return 0


def _report(
    results: Sequence[SimulationResult],
    parsed: argparse.Namespace,
    *,
    title: str,
    remarks: Sequence[str],
    slo: ServiceLevel,
    lower_bound: Sequence[SizedWindow] = (),
    about: str = "scaler",
) -> None:
    """Write files, and then the table."""
    settings = {name: _plain(value) for name, value in sorted(vars(parsed).items())}
    if parsed.json is not None:
        figures = write_json(results, settings=settings, lower_bound=lower_bound)
        write_output(parsed.json, figures)
    if parsed.html is not None:
        page = write_page(
            results, title=title, remarks=remarks, settings=settings, slo=slo, about=about
        )
        write_output(parsed.html, page.encode())
    print(write_table(results, slo.percentile, about=about))  # last: `| head` may end this


def _run(scenario: Scenario, makers: Makers, name: str) -> SimulationResult:
    """Run one scaler, with a line that says how far it is, where somebody sees it."""
    scaler = makers.make(name)
    is_seen = sys.stderr.isatty()

    def progress(share: float) -> None:
        if is_seen:
            print(f"\r{scaler.name}: {share:.0%} ", end="", file=sys.stderr, flush=True)

    result = simulate(scenario, scaler, progress=progress)
    if is_seen:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return result


def _check_names(parsed: argparse.Namespace, known: Sequence[str]) -> None:
    """Raise ConfigError where a flag names a type that is not simulated."""
    for flag, named in (
        ("--spot", list(parsed.spot)),
        ("--event", [e.engine_type for e in parsed.event if e.engine_type != GATEWAYS]),
        ("--fixed", list(parsed.fixed)),
    ):
        unknown = [name for name in named if name not in known]
        if unknown:
            raise ConfigError(
                f"{flag} names {', '.join(unknown)}, which does not serve here: there are"
                f" {', '.join(known)}"
            )


def _plain(value: object) -> object:
    """A setting as JSON has it."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value if isinstance(value, int | float | str | dict | None) else str(value)


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


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="quire simulate",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_traffic_flags(parser)
    add_service_flags(parser)
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
        "--fixed", type=pairs, default={}, metavar="GPU=N,...", help="replicas of the scaler fixed"
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
        type=number_from(0.001, 1e6),
        metavar="H",
        help="each replica dies once in so many hours",
    )
    group.add_argument(
        "--spot",
        type=pairs,
        default={},
        metavar="GPU=HOURS,...",
        help="the cloud wants replicas of a type back, each once in so many hours",
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
