"""From the start to a loaded model: what is told meanwhile, and a signal that comes too early."""

import asyncio
import logging
import os
import sys
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from quire_engine.config import AccessConfig, EngineConfig
from quire_engine.config.fields import settings
from quire_engine.config.values import is_secret
from quire_engine.execution.base import Progress
from quire_engine.server.progress import ProgressLines, ProgressRecords
from quire_engine.server.shutdown import StopSignals

_log = logging.getLogger("quire_engine.server")


async def load_unless_stopped(loading: Coroutine[Any, Any, None], signals: StopSignals) -> bool:
    """Wait for a model to be loaded; the answer is no when a signal came first.

    Raises
    ------
    QuireError
        As the loading does.
    """
    task = asyncio.create_task(loading, name="load")
    stopping = asyncio.create_task(signals.first.wait(), name="stop")
    await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not task.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return False
    task.result()
    return True


def choose_progress(config: EngineConfig) -> Progress:
    """Where the progress of loading is shown, as the log's format has it."""
    if config.observability.log_format == "json":
        return ProgressRecords(_log)
    return ProgressLines(sys.stderr)


def without_secrets(config: EngineConfig) -> EngineConfig:
    """Keys are known to `Access` alone, as digests: not to the core, nor to a command it starts."""
    for setting in settings():
        if is_secret(setting):
            os.environ.pop(setting.variable, None)
    return replace(config, access=AccessConfig())
