"""`quire top`: blocks, queues, pressure and rates of all replicas, live in the terminal."""

import argparse
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from quire_engine.__main__ import report_errors
from quire_local.parser import Parser

if TYPE_CHECKING:
    from quire_local.top.source import Source

_SECONDS, _ONCE_SECONDS = 1.0, 3.0
"""Between looks; what two alone tell of a rate has to be of more than a moment."""

_DESCRIPTION = """\
Show a fleet as its gateways see it: of each replica the KV blocks, the queue, the pressure with the
limit that binds, and rates. Ctrl-C ends it."""

_EPILOG = """\
URL is a gateway's management port (http://HOST:8090) or the live page of quire up
(http://127.0.0.1:8001). Without it: what runs on this machine at these ports, else the gateways of
the kubeconfig's cluster, by port-forward.

TOKENS/S counts all that a replica computes, prompts too; "tokens/s out" those of answers that
ended. exit status: 0; 1 if nobody answers (--once); 2 if a flag is wrong."""


def main(argv: Sequence[str]) -> int:
    """Show until Ctrl-C; the exit status is returned."""
    return report_errors(lambda: _top(_parser().parse_args(argv)))


def _top(parsed: argparse.Namespace) -> int:
    # Imported only now: `--help` and wrong flags are answered at once.
    from quire_local.top.running import Watcher, show_on, show_once

    watcher = Watcher(_source(parsed), parsed.service)
    if parsed.once:
        show_once(watcher, parsed.interval or _ONCE_SECONDS, as_json=parsed.json)
        return 0
    with suppress(KeyboardInterrupt):
        show_on(watcher, parsed.interval or _SECONDS, as_json=parsed.json)
    return 0


def _source(parsed: argparse.Namespace) -> "Source":
    from quire_local.cluster.api import ClusterApi, UnreachableError
    from quire_local.top.source import ClusterSource, UrlSource, find_local

    if parsed.url is not None:
        return UrlSource(parsed.url)
    is_cluster = parsed.kubeconfig or parsed.context or parsed.namespace
    if not is_cluster and (found := find_local()) is not None:
        return found
    try:
        api = ClusterApi(parsed.kubeconfig, parsed.context)
    except UnreachableError as error:
        here = "" if is_cluster else "nothing of quire runs here at ports 8001 and 8090, and "
        raise UnreachableError(f"{here}{error}; or say the URL of a gateway") from error
    return ClusterSource(api, parsed.namespace)


def _parser() -> argparse.ArgumentParser:
    made = Parser(
        prog="quire top",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("url", metavar="URL", nargs="?", help="of a gateway")
    made.add_argument("--kubeconfig", metavar="FILE", help="of the cluster [as kubectl has it]")
    made.add_argument("--context", metavar="NAME", help="of the kubeconfig [its current one]")
    made.add_argument("--namespace", metavar="NAME", help="of the gateways [all namespaces]")
    made.add_argument("--service", metavar="NAME", help="show this one alone")
    made.add_argument(
        "--interval", metavar="SECONDS", type=_interval, help="between looks [1; with --once 3]"
    )
    made.add_argument("--once", action="store_true", help="look twice, print once and end")
    made.add_argument("--json", action="store_true", help="a line of JSON for each look")
    return made


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not 0.1 to 3600 seconds")
    return seconds
