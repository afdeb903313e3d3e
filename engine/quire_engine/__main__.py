"""`python -m quire_engine`: serve one model on this node; the same flags as `quire serve`."""

import logging
import os
import sys
from collections.abc import Callable, Sequence

from quire_engine import logs
from quire_engine.config.flags import FlagParser, add_setting_flags, serve_config_from
from quire_engine.config.vllm_flags import add_vllm_flags
from quire_engine.errors import QuireError, exit_status

_log = logging.getLogger(__name__)

_DESCRIPTION = "Serve a model through the OpenAI API until SIGTERM or Ctrl-C."


def main(argv: Sequence[str] | None = None, *, prog: str = "python -m quire_engine") -> int:
    """Serve until told to stop; the exit status is returned."""
    return report_errors(lambda: _serve(sys.argv[1:] if argv is None else argv, prog))


def report_errors(action: Callable[[], int]) -> int:
    """Run `action`; an error meant for the user becomes one line and an exit status.

    The status is 2 for wrong usage or configuration, 1 for anything else that went wrong, and
    130 after Ctrl-C, as shells have it.
    """
    try:
        return action()
    except QuireError as error:
        print(f"quire: error: {error}", file=sys.stderr)
        return exit_status(error)
    except KeyboardInterrupt:
        return 130


def _serve(argv: Sequence[str], prog: str) -> int:
    parser = FlagParser(prog=prog, description=_DESCRIPTION)
    add_setting_flags(parser)
    add_vllm_flags(parser)
    config, idle = serve_config_from(parser.parse_known(argv), os.environ)
    if idle:
        logs.configure(config.observability, "api")
        _log.warning("flags without effect here, see --help: %s", ", ".join(idle))
    # Imported only now: `--help` and wrong flags are answered at once.
    from quire_engine.server.run import run

    return run(config)


if __name__ == "__main__":
    sys.exit(main())
