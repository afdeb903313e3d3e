"""Whether requests are traced; where traces go is said in `quire_engine.otlp`."""

import os
import threading
from typing import Protocol

from quire_engine.errors import ConfigError
from quire_engine.otlp import open_provider
from quire_gateway.errors import SettingsError
from quire_gateway.serving.record import Record

_CLOSE_SECONDS = 3.0
"""The last traces may take this long to be sent."""


class Tracing(Protocol):
    """Where requests go as traces."""

    def begin(self, record: Record) -> None:
        """A request has come; its engine will be told of its span."""

    def end(self, record: Record) -> None:
        """It has ended."""

    def close(self) -> None:
        """Send what is left; may take seconds."""


def open_tracing(endpoint: str) -> Tracing | None:
    """Open what is asked for, by the flag or by OpenTelemetry's variables.

    Raises
    ------
    SettingsError
        `endpoint` is no address, or what sends traces is not installed.
    """
    try:
        provider = open_provider(endpoint or None, os.environ, service_name="quire-gateway")
    except ConfigError as error:
        raise SettingsError(str(error)) from error
    if provider is None:
        return None
    from quire_gateway.serving.otel import Spans

    return Spans(provider)


def close_tracing(tracing: Tracing | None) -> None:
    """Send the last traces; a collector that does not answer holds up nothing for long."""
    if tracing is not None:
        sending = threading.Thread(target=tracing.close, daemon=True)
        sending.start()
        sending.join(_CLOSE_SECONDS)
