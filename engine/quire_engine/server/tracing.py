"""Whether requests are traced; where traces go is said in `quire_engine.otlp`."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

from quire_engine.otlp import open_provider
from quire_engine.server.background import run_in_daemon_thread
from quire_engine.server.request_record import RequestRecord

_CLOSE_SECONDS = 3
"""The last traces may take this long to be sent."""


class Tracing(Protocol):
    """Where the records of requests go as traces."""

    def export(self, record: RequestRecord) -> None:
        """Send a request that has ended; returns at once."""

    def close(self) -> None:
        """Send what is left; may take seconds."""


def open_tracing(
    endpoint: str | None, environment: Mapping[str, str], *, model_name: str
) -> Tracing | None:
    """Open what is asked for, by the flag or by OpenTelemetry's variables.

    Raises
    ------
    ConfigError
        `endpoint` is no address, or what sends traces is not installed.
    """
    provider = open_provider(endpoint, environment, service_name="quire")
    if provider is None:
        return None
    from quire_engine.server.otel import OtelTracing

    return OtelTracing(provider, model_name=model_name)


async def close_tracing(tracing: Tracing | None) -> None:
    """Send the last traces; a collector that does not answer holds up nothing for long."""
    if tracing is not None:
        with suppress(TimeoutError):
            await asyncio.wait_for(run_in_daemon_thread(tracing.close), _CLOSE_SECONDS)
