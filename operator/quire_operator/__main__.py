"""`python -m quire_operator`: watch InferenceServices and run them until SIGTERM."""

import asyncio
import logging
import sys
from collections.abc import Sequence

from quire_operator.errors import OperatorError
from quire_operator.logs import configure
from quire_operator.run import run
from quire_operator.settings import parse

_log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run until told to stop; the exit status is returned."""
    try:
        settings = parse(sys.argv[1:] if argv is None else argv)
        configure(settings.log_format)
        return asyncio.run(run(settings))
    except OperatorError as error:
        print(f"quire-operator: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
