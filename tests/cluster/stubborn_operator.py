"""An operator with a task that does not let itself be cancelled, made while it watches.

kopf waits for such a task without end once a watch has failed for good.
"""

import asyncio
import sys
from contextlib import suppress

from quire_operator.logs import configure
from quire_operator.run import run
from quire_operator.settings import parse

_OF_KOPF = "multidimensional multitasker"


async def _never_end() -> None:
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


async def _disturb() -> None:
    while True:
        await asyncio.sleep(0.1)
        if any(task.get_name() == _OF_KOPF for task in asyncio.all_tasks()):
            await asyncio.create_task(_never_end())


async def _main() -> int:
    settings = parse(sys.argv[1:])
    configure(settings.log_format)
    disturbing = asyncio.create_task(_disturb())
    try:
        return await run(settings)
    finally:
        disturbing.cancel()


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
