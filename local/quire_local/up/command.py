"""`quire up -f FILE`: run InferenceServices on this machine until Ctrl-C."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from quire_engine.__main__ import report_errors
from quire_engine.errors import ConfigError
from quire_local.parser import Parser
from quire_local.up.inventory import parse_inventory
from quire_local.up.run import OnReady, UpSettings, run
from quire_local.up.terminal import Terminal

_DESCRIPTION = """\
Run the InferenceServices in FILE on this machine until Ctrl-C: the operator's planner, a process in
place of each pod, and the gateway in front. FILE is read again when it changes."""

_EPILOG = """\
exit status: 0 after Ctrl-C or SIGTERM; 1 if no service can ever become ready; 2 if FILE or a flag
is wrong, or a port is taken."""


def main(argv: Sequence[str]) -> int:
    """Run until a signal; the exit status is returned."""
    return report_errors(lambda: up(parser().parse_args(argv)))


def up(parsed: argparse.Namespace, on_ready: OnReady | None = None) -> int:
    """Run what the flags say.

    Raises
    ------
    QuireError
        FILE or a flag is wrong, or no service can ever become ready.
    """
    settings = UpSettings(
        file=Path(parsed.file),
        host=parsed.host,
        port=parsed.port,
        page_port=parsed.page_port,
        num_gpus=parse_inventory(parsed.simulate) if parsed.simulate is not None else {},
        claims=dict(_claim(text) for text in parsed.claim),
        logs=Path(parsed.logs) if parsed.logs else None,
        shows_logs=not parsed.quiet,
    )
    return run(settings, Terminal(sys.stdout, shows_logs=settings.shows_logs), on_ready)


def parser(*, prog: str = "quire up", default_file: str | None = None) -> argparse.ArgumentParser:
    """The flags."""
    made = Parser(
        prog=prog,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "-f",
        "--file",
        action=_Once,
        metavar="FILE",
        required=default_file is None,
        default=default_file,
        help="YAML documents: InferenceServices, and the Secrets that they name",
    )
    made.add_argument(
        "--simulate",
        metavar="TYPE=N,...",
        help="GPUs that this machine is to have, such as l4=2,h100=1; engines on them take the time"
        " that the GPU would, and compute nothing (types: quire profiles)",
    )
    made.add_argument("--host", default="127.0.0.1", help="address of the API [127.0.0.1]")
    made.add_argument(
        "--port", type=_port, default=8000, help="port of the API; 0 takes a free one [8000]"
    )
    made.add_argument(
        "--page-port",
        type=_port,
        metavar="PORT",
        help="port of the live page, on this machine alone; 0 takes a free one [--port + 1, or a"
        " free one]",
    )
    made.add_argument(
        "--claim",
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="folder in place of a PersistentVolumeClaim, for pvc:// sources; may be repeated",
    )
    made.add_argument(
        "--logs", metavar="FOLDER", help="where each process's log is kept [removed at the end]"
    )
    made.add_argument("--quiet", action="store_true", help="do not print the processes' output")
    return made


class _Once(argparse.Action):
    """A flag that may not be repeated: the last one would silently win."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        """Keep its value, which is the first."""
        if getattr(namespace, self.dest) is not self.default:
            parser.error(
                f"{option_string} may be given once: put the documents into one file, with ---"
                " between them"
            )
        setattr(namespace, self.dest, values)


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port, 0 to 65535")
    return int(text)


def _claim(text: str) -> tuple[str, Path]:
    name, _, folder = text.partition("=")
    path = Path(folder).expanduser().absolute()
    if not name or not folder or not path.is_dir():
        raise ConfigError(f"--claim {text}: say NAME=FOLDER, with a folder that is there")
    return name, path
