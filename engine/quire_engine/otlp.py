"""Where traces go: of engine and gateway alike; without a wish for them nothing is imported.

OpenTelemetry's own variables decide as everywhere (OTEL_EXPORTER_OTLP_ENDPOINT and its like, also
OTEL_SDK_DISABLED and OTEL_TRACES_EXPORTER=none); an address that a flag gives wins over them.
"""

import logging
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from quire_engine.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_log = logging.getLogger(__name__)

_ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_TRACES_PATH = "/v1/traces"
_NOT_INSTALLED = 'traces need the extra "otel": pip install "quire[otel]"'


def open_provider(
    endpoint: str | None, environment: Mapping[str, str], *, service_name: str
) -> "TracerProvider | None":
    """Open what sends spans, in batches, from a thread of its own; None if none are wanted.

    Parameters
    ----------
    endpoint
        Where to; None leaves it to OpenTelemetry's variables, like all else about sending.
    service_name
        What the process is called, unless these variables say it.

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
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        if endpoint is not None:
            raise ConfigError(_NOT_INSTALLED) from error
        _log.warning("requests are not traced: %s", _NOT_INSTALLED)
        return None
    attributes = {"service.version": version("quire")}
    if not _is_service_named(environment):
        attributes["service.name"] = service_name
    provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=address)))
    return provider


def _is_service_named(environment: Mapping[str, str]) -> bool:
    attributes = environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return bool(environment.get("OTEL_SERVICE_NAME")) or "service.name" in attributes


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
