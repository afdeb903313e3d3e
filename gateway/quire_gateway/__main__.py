"""`python -m quire_gateway`: route OpenAI's API to many engines until SIGTERM."""

import asyncio
import logging
import sys
from collections.abc import Sequence

import uvloop

from quire_engine.logs import configure
from quire_gateway.errors import GatewayError
from quire_gateway.run import run
from quire_gateway.serving import exchange
from quire_gateway.settings import parse

_log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run until told to stop; the exit status is returned."""
    try:
        settings = parse(sys.argv[1:] if argv is None else argv)
        configure(settings.observability, "gateway")
        is_compiled = not (exchange.__file__ or "").endswith(".py")
        _log.info("requests go through %s", "compiled code" if is_compiled else "plain Python")
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(run(settings))
    except GatewayError as error:
        print(f"quire-gateway: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
