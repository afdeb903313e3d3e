"""`quire doctor`: check this machine and the cluster, and say what to fix."""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from quire_engine.__main__ import report_errors
from quire_local.doctor.finding import Finding, Findings, fail, ok, warn, worst
from quire_local.parser import Parser

_DESCRIPTION = """\
Check this machine, and the kubeconfig's cluster where there is one: what is wrong, and the command
that mends it. Nothing is changed."""

_EPILOG = "exit status: 0 if nothing failed, warnings or not; 1 otherwise; 2 if a flag is wrong."
_COLOURS = {"ok": 32, "warn": 33, "fail": 31}
_ADMIN = "ask an administrator to run quire doctor, or for the role view"


def main(argv: Sequence[str]) -> int:
    """Check; the exit status is returned."""
    return report_errors(lambda: _doctor(_parser().parse_args(argv)))


def _doctor(parsed: argparse.Namespace) -> int:
    findings: list[Finding] = []
    for found in _checks(parsed):
        findings.append(found)
        if not parsed.json:
            _print(found)
    level = worst(findings)
    if parsed.json:
        document = {"level": level, "findings": findings}
        print(msgspec.json.format(msgspec.json.encode(document), indent=1).decode())
    else:
        counts = Counter(one.level for one in findings)
        warnings = "1 warning" if counts["warn"] == 1 else f"{counts['warn']} warnings"
        print(f"\n{counts['ok']} ok, {warnings}, {counts['fail']} failed")
    return 1 if level == "fail" else 0


def _checks(parsed: argparse.Namespace) -> Findings:
    from quire_local.cluster.api import has_kubeconfig

    if parsed.only != "cluster":
        from quire_local.doctor.machine import check_machine

        yield from check_machine()
    is_asked = parsed.only == "cluster" or parsed.kubeconfig or parsed.context
    if is_asked or (parsed.only is None and has_kubeconfig()):
        yield from check_cluster(parsed.kubeconfig, parsed.context)
    elif parsed.only is None:
        yield ok("cluster", "no kubeconfig: nothing of a cluster was checked")


def check_cluster(kubeconfig: str | None, context: str | None) -> Findings:
    """All checks of a cluster; those that the user may not make are told, and others go on."""
    from quire_local.cluster.api import ClusterApi, ClusterError
    from quire_local.doctor import installation, nodes, operator, services, ways_in

    contexts = "kubectl config get-contexts; kubectl cluster-info"
    try:
        api = ClusterApi(kubeconfig, context)
        yield installation.check_server(api)
    except ClusterError as error:
        yield fail("api server", str(error), contexts)
        return
    yield from _one("kind", lambda: iter([installation.check_kind(api)]))
    yield from _one("operator", lambda: operator.check_operator(api))
    yield from _one("gateway", lambda: installation.check_gateway(api))
    try:
        known = services.list_services(api)
        told = services.check_services(known)
    except ClusterError as error:
        known, told = [], iter([warn("services", f"not checked: {error}", _ADMIN)])
    yield from _one("nodes", lambda: nodes.check_nodes(api, known))
    yield from _one("images", lambda: services.check_images(api))
    yield from _one("ingress", lambda: ways_in.check_ways_in(api, known))
    yield from _one("certificates", lambda: ways_in.check_certificates(api, known))
    yield from _one("monitoring", lambda: services.check_monitoring(api))
    yield from told


def _one(check: str, run: Callable[[], Findings]) -> Findings:
    """A check, and what keeps it from being made."""
    from quire_local.cluster.api import ClusterError

    try:
        yield from run()
    except ClusterError as error:
        yield warn(check, f"not checked: {error}", _ADMIN)


def _print(found: Finding) -> None:
    mark = f"{found.level:4}"
    if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
        mark = f"\x1b[{_COLOURS[found.level]}m{mark}\x1b[0m"
    print(f"{mark}  {found.check}: {found.says}", flush=True)
    if found.fix:
        print(f"      -> {found.fix}", flush=True)


def _parser() -> argparse.ArgumentParser:
    made = Parser(prog="quire doctor", description=_DESCRIPTION, epilog=_EPILOG, allow_abbrev=False)
    made.add_argument("--only", choices=("machine", "cluster"), help="check this alone")
    made.add_argument("--kubeconfig", metavar="FILE", help="of the cluster [as kubectl has it]")
    made.add_argument("--context", metavar="NAME", help="of the kubeconfig [its current one]")
    made.add_argument("--json", action="store_true", help="print all as JSON")
    return made
