"""Ports that engines reach outside the cluster: of their model, of a proxy, of a trace collector.

A NetworkPolicy cannot name hosts, and addresses change: it is the ports that are known.
"""

from urllib.parse import urlsplit

from quire_operator.resource.accelerator import Accelerator
from quire_operator.resource.reading import InferenceService

_ADDRESSES = {
    "HF_ENDPOINT": "another hub",
    "UV_INDEX_URL": "another package index",
    "PIP_INDEX_URL": "another package index",
    "HTTPS_PROXY": "a proxy",
    "HTTP_PROXY": "a proxy",
    "ALL_PROXY": "a proxy",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "a trace collector",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "a trace collector",
}
"""Environment variables of the engine that are addresses; those of proxies in small letters too."""
_PORTS = {"https": 443, "http": 80, "socks5": 1080}
_HTTPS = 443


def outside_ports(service: InferenceService) -> dict[int, str]:
    """Each port, and what for."""
    found: dict[int, str] = {}
    source = service.spec.model.source
    is_simulated = all(one.simulate for one in service.spec.accelerators)
    if not source.startswith("pvc://") and not is_simulated:
        found[_port(source) if source.startswith("https://") else _HTTPS] = "the model's files"
    for accelerator in service.spec.accelerators:
        found |= _of_variables(accelerator)
    for argument in service.spec.engine.extra_args:
        name, _, value = argument.partition("=")
        if name == "--otlp-endpoint" and (port := _port(value)):
            found[port] = "a trace collector"
    found.pop(0, None)
    return found


def _of_variables(accelerator: Accelerator) -> dict[int, str]:
    return {
        _port(one.value): _ADDRESSES[one.name.upper()]
        for one in accelerator.pod.env
        if one.value and one.name.upper() in _ADDRESSES
    }


def _port(address: str) -> int:
    """The port of an address; 0 if it has none."""
    try:
        parts = urlsplit(address)
        return parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return 0
