"""`quire simulate`: what traffic would cost, and how it would be served, before anything is bought.

Engines are simulated in virtual time with the real scheduler, admission, routing and scaling.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace

from quire_engine.__main__ import report_errors
from quire_engine.errors import ConfigError
from quire_local.simulate.flags import say
from quire_local.simulate.idle import OF_A_SIMULATION, find_idle, refuse_idle
from quire_local.simulate.observing import Scaler
from quire_local.simulate.outputs import check_outputs, write_output
from quire_local.simulate.page import write_page
from quire_local.simulate.parser import EntryParser, make_parser
from quire_local.simulate.progress import Progress
from quire_local.simulate.report import write_json, write_table
from quire_local.simulate.results import SimulationResult
from quire_local.simulate.scenarios import makers_of, scenario_of
from quire_local.simulate.services_file import ServiceEntry, read_services
from quire_local.simulate.simulation import Scenario, simulate
from quire_local.simulate.sizing import SizedWindow
from quire_local.words import counted


def main(argv: Sequence[str]) -> int:
    """Simulate and report; the exit status is returned."""
    return report_errors(lambda: _run_command(argv))


def _run_command(argv: Sequence[str]) -> int:
    parsed = make_parser().parse_args(argv)
    check_outputs(parsed.json, parsed.html)
    if parsed.services is not None:
        return _simulate_several(parsed, argv)
    refuse_idle(find_idle(argv, parsed, OF_A_SIMULATION))
    return _simulate(parsed)


def _simulate(parsed: argparse.Namespace) -> int:
    scenario, workload, remarks = scenario_of(parsed)
    makers = makers_of(parsed, scenario)
    title = (
        f"{workload.name}: {counted(len(workload.trace), 'request')} in {workload.seconds:.0f} s,"
        f" {parsed.model}, quantization {parsed.quantization}"
    )
    print(say(remarks) + title + "\n", file=sys.stderr)
    scalers = [makers.make(name) for name in parsed.scaler]  # what one lacks is said before all
    results = [_run(scenario, scaler) for scaler in scalers]
    lower_bound = makers.windows if parsed.json is not None else ()
    _report(results, parsed, title=title, remarks=remarks, lower_bound=lower_bound)
    return 0


def _run(scenario: Scenario, scaler: Scaler) -> SimulationResult:
    """Run one scaler."""
    progress = Progress(scaler.name, sys.stderr)
    result = simulate(scenario, scaler, progress=progress)
    progress.end()
    return result


def _simulate_several(parsed: argparse.Namespace, argv: Sequence[str]) -> int:
    """All services of the file, scaled together."""
    # the operator's scaling is asked for here alone
    from quire_local.simulate.several import Several, SimulatedService

    services, remarks = [], []
    entries = read_services(parsed.services)
    for entry, own in zip(entries, _parse_entries(entries, parsed, argv), strict=True):
        try:
            scenario, _, own_remarks = scenario_of(own)
        except ConfigError as error:
            raise ConfigError(f"{parsed.services}: {entry.name}: {error}") from error
        scaler = makers_of(own, scenario).quire()
        remarks += [f"{entry.name}: {remark}" for remark in own_remarks]
        made = SimulatedService(
            name=entry.name, scenario=scenario, scaler=scaler, priority=entry.priority
        )
        services.append(made)
    title = f"{counted(len(services), 'service')} of {parsed.services}"
    print(say(remarks) + title + "\n", file=sys.stderr)
    progress = Progress("quire", sys.stderr)
    found = Several(services, progress=progress).run()
    progress.end()
    results = [replace(found[one.name], scaler=one.name) for one in services]
    _report(results, parsed, title=title, remarks=remarks, about="service")
    return 0


def _parse_entries(
    entries: Sequence[ServiceEntry], parsed: argparse.Namespace, argv: Sequence[str]
) -> list[argparse.Namespace]:
    """Read each service's flags, with those of the command line for what it does not say.

    Raises
    ------
    ConfigError
        A service's flag is wrong or of no use, or one of the command line is of use to none.
    """
    if any(text.partition("=")[0] == "--scaler" for text in argv) and parsed.scaler != ["quire"]:
        raise ConfigError("several services are scaled by quire, all in one: leave --scaler out")
    found = []
    idle = set(OF_A_SIMULATION)
    for entry in entries:
        try:
            own = make_parser(EntryParser).parse_args([*argv, *entry.flags])
            own.scaler = ["quire"]
            refuse_idle(find_idle(entry.flags, own, OF_A_SIMULATION))
        except ConfigError as error:
            raise ConfigError(f"{parsed.services}: {entry.name}: {error}") from error
        idle &= set(find_idle(argv, own, OF_A_SIMULATION))
        found.append(own)
    refuse_idle([rule for rule in OF_A_SIMULATION if rule in idle])
    return found


def _report(
    results: Sequence[SimulationResult],
    parsed: argparse.Namespace,
    *,
    title: str,
    remarks: Sequence[str],
    lower_bound: Sequence[SizedWindow] = (),
    about: str = "scaler",
) -> None:
    """Write files, and then the table."""
    settings = {name: _plain(value) for name, value in sorted(vars(parsed).items())}
    if parsed.json is not None:
        figures = write_json(results, settings=settings, lower_bound=lower_bound)
        write_output(parsed.json, figures)
    if parsed.html is not None:
        page = write_page(results, title=title, remarks=remarks, settings=settings, about=about)
        write_output(parsed.html, page.encode())
    print(write_table(results, about=about))  # last: `| head` may end this


def _plain(value: object) -> object:
    """A setting as JSON has it."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value if isinstance(value, int | float | str | dict | None) else str(value)
