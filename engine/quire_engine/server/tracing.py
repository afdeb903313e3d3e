"""Whether requests are traced, and where to; without a wish for it nothing is imported or made.

OpenTelemetry's own variables decide as everywhere (OTEL_EXPORTER_OTLP_ENDPOINT and its like, also
OTEL_SDK_DISABLED and OTEL_TRACES_EXPORTER=none); `--otlp-endpoint` wins over them.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol
from urllib.parse import urlsplit

from quire_engine.errors import ConfigError
from quire_engine.server.background import run_in_daemon_thread
from quire_engine.server.request_record import RequestRecord

_log = logging.getLogger(__name__)

_ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_CLOSE_SECONDS = 3
"""The last traces may take this long to be sent."""
_TRACES_PATH = "/v1/traces"
_NOT_INSTALLED = 'traces need the extra "otel": pip install "quire[otel]"'


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
    is_named = any(environment.get(name) for name in _ENDPOINT_VARIABLES)
    is_off = (
        environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
        or environment.get("OTEL_TRACES_EXPORTER") == "none"
    )
    if is_off or (endpoint is None and not is_named):
        return None
    address = None if endpoint is None else _traces_address(endpoint)
    try:
        from quire_engine.server.otel import OtelTracing
    except ImportError as error:
        if endpoint is not None:
            raise ConfigError(_NOT_INSTALLED) from error
        _log.warning("requests are not traced: %s", _NOT_INSTALLED)
        return None
    return OtelTracing(address, environment, model_name=model_name)


async def close_tracing(tracing: Tracing | None) -> None:
    """Send the last traces; a collector that does not answer holds up nothing for long."""
    if tracing is not None:
        with suppress(TimeoutError):
            await asyncio.wait_for(run_in_daemon_thread(tracing.close), _CLOSE_SECONDS)


def _traces_address(endpoint: str) -> str:
    """The full address; of a collector alone, the path is OTLP's."""
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(
            f"otlp_endpoint is {endpoint}, but must be an address of OTLP over HTTP, such as "
            "http://127.0.0.1:4318"
        )
    path = parts.path.rstrip("/")
    return parts._replace(path=path or _TRACES_PATH).geturl()
