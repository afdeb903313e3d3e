"""Serving one model with several API processes: see `quire_engine.server.run`, the like for one."""

import logging

from quire_engine import logs
from quire_engine.config import EngineConfig
from quire_engine.open_files import raise_open_files
from quire_engine.server.access import Access
from quire_engine.server.listener import listen, url_of
from quire_engine.server.loading import choose_progress, load_unless_stopped
from quire_engine.server.service import choose_model_name
from quire_engine.server.shutdown import StopSignals, drain
from quire_engine.workers.pool import WorkerPool

_log = logging.getLogger(__name__)


async def serve_with_workers(config: EngineConfig) -> int:
    """Serve until SIGTERM or Ctrl-C.

    Raises
    ------
    QuireError
        The server could not start; the message is for the user.
    """
    Access(config.access)  # what is wrong with it is told once, and before anything is started
    announce = logs.announcer(config.observability, "api")
    raise_open_files(config.server.max_connections)  # workers inherit it
    model_name = choose_model_name(config)
    with listen(config.server.host, config.server.port) as listener:
        url = url_of(listener)
        signals = StopSignals()
        signals.install()
        pool = WorkerPool(config, listener)
        pool.start()
        try:
            announce(f"listening on {url}, loading {model_name}")
            if await load_unless_stopped(pool.load(choose_progress(config)), signals):
                announce(f"ready: {model_name} on {url}/v1")
                await signals.first.wait()
                _log.info("asked to stop: running requests may finish")
            await drain(pool, config.server, signals)
        finally:
            await pool.close()
            signals.remove()
    return 0
