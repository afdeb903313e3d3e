"""The gateway's settings: flags of `python -m quire_gateway`, or QUIRE_GATEWAY_* variables."""

import argparse
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import ceil
from typing import NoReturn, get_args

from quire_engine.config import ObservabilityConfig
from quire_engine.config.fields import documentation
from quire_engine.config.kinds import LogFormat, LogLevel
from quire_gateway.errors import SettingsError

_PREFIX = "QUIRE_GATEWAY_"
_ABOVE_ZERO = (
    "stale_seconds",
    "silence_seconds",
    "hang_seconds",
    "request_timeout_seconds",
    "reader_stall_seconds",
    "max_connections",
    "max_body_bytes",
    "max_total_body_bytes",
)
_MAX_WORKERS = 64
_HOST = re.compile(r"[a-z0-9]([-_.a-z0-9]*[a-z0-9])?|\[[0-9a-f:.]+\]")
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, kw_only=True)
class GatewaySettings:
    """How one gateway runs."""

    routing: str = ""
    """File of routing documents; read again when it changes. This or --kubernetes is required."""
    kubernetes: bool = False
    """Whether routing documents and engines are those of the cluster that the service account or
    KUBECONFIG names."""
    namespaces: str = ""
    """Namespaces whose services it routes to, with commas between; default: all of the cluster."""
    host: str = "127.0.0.1"
    """Address that clients reach it at."""
    port: int = 8080
    """Port of clients; 0 takes a free one."""
    tls_certificate_file: str = ""
    """File with the certificate chain of the clients' port, in PEM; read again when it changes.
    Default: no TLS."""
    tls_key_file: str = ""
    """File with its private key."""
    proxied_hosts: str = ""
    """Host names at which a proxy of yours, one that is no service's ingress, leads to all
    services, with commas between; * stands for each host that no ingress has. Default: what a
    proxy passes on is answered at the hosts of ingresses alone."""
    workers: int = 1
    """Processes that move bytes: one for each core that they may use. With 1, one process does
    all; with more, another one decides for them, and one watches over all (Linux only). What the
    bounds below allow, each takes its part of."""
    management_host: str = "127.0.0.1"
    """Address of probes, metrics and the fleet."""
    management_port: int = 8090
    """Port of /healthz, /readyz, /metrics and /fleet; 0 takes a free one. It asks for no key."""
    root_secret_file: str = ""
    """File with the secret that internal tokens are made of; default: none are sent, and engines
    take the gateway only on the same machine."""
    stale_seconds: float = 3.0
    """An engine that was silent for so long gets no more requests."""
    silence_seconds: float = 10.0
    """An engine that was silent for so long is believed to hang: its requests are tried elsewhere,
    or end with an error."""
    hang_seconds: float = 30.0
    """An engine that has not begun to answer a request so long after four times what was predicted
    is believed to hang at it: the request is tried elsewhere."""
    request_timeout_seconds: float = 3600.0
    """A request may take so long at an engine."""
    reader_stall_seconds: float = 60.0
    """A client that reads nothing for so long is cut off."""
    max_connections: int = 10000
    """Most connections of clients."""
    max_body_bytes: int = 4194304
    """Largest body of a request."""
    max_total_body_bytes: int = 268435456
    """Bodies of all requests together that are held at a time."""
    drain_grace_seconds: float = 5.0
    """After SIGTERM it takes requests for so long, until load balancers have noticed."""
    drain_seconds: float = 300.0
    """After SIGTERM, answers may take so long to end."""
    log_requests: bool = False
    """Whether each request has a line in the log; prompts and answers never have."""
    otlp_endpoint: str = ""
    """Where requests go as traces: a collector's address of OTLP over HTTP, such as
    http://127.0.0.1:4318. Default: as OpenTelemetry's variables say, else nowhere."""
    log_format: LogFormat = "json"
    """json, or text for people."""
    log_level: LogLevel = "info"
    """Least severe messages that are logged: debug, info, warning or error. With debug, also what
    unexpected errors say, which may quote a request."""

    def __post_init__(self) -> None:
        """Refuse what would fail later, or never be noticed."""
        self._check_together()
        self._check_hosts()
        self._check_logs()
        for name in _ABOVE_ZERO:
            if not 0 < getattr(self, name) < math.inf:
                self._refuse(name, "a number above 0")
        for name in ("drain_grace_seconds", "drain_seconds"):
            if not 0 <= getattr(self, name) < math.inf:
                self._refuse(name, "a number, 0 or above")
        if not 1 <= self.workers <= _MAX_WORKERS:
            self._refuse("workers", f"1 to {_MAX_WORKERS}")
        if self.workers > 1 and sys.platform != "linux":
            raise SettingsError("--workers above 1 needs Linux: leave it out")
        for name in ("port", "management_port"):
            if not 0 <= getattr(self, name) <= 65535:
                self._refuse(name, "a port, 0 to 65535")

    def _check_together(self) -> None:
        """Refuse what cannot be said together, or not alone."""
        if bool(self.routing) == self.kubernetes:
            raise SettingsError(
                "--routing is missing: name a file of routing documents, or use --kubernetes"
                if not self.routing
                else "--routing and --kubernetes exclude each other: leave one of them out"
            )
        if self.namespaces and not self.kubernetes:
            raise SettingsError("--namespaces needs --kubernetes")
        if bool(self.tls_certificate_file) != bool(self.tls_key_file):
            raise SettingsError("--tls-certificate-file and --tls-key-file need each other")

    def _check_hosts(self) -> None:
        for host in self.all_proxied_hosts:
            if host != "*" and not _HOST.fullmatch(host):
                self._refuse("proxied_hosts", "host names without scheme and port, or *")

    def _check_logs(self) -> None:
        for name, kind in (("log_format", LogFormat), ("log_level", LogLevel)):
            if getattr(self, name) not in get_args(kind):
                self._refuse(name, " or ".join(get_args(kind)))

    @property
    def all_proxied_hosts(self) -> frozenset[str]:
        """The hosts of `proxied_hosts`, as those are written that clients asked for."""
        hosts = (one.strip().lower().removesuffix(".") for one in self.proxied_hosts.split(","))
        return frozenset(hosts) - {""}

    @property
    def observability(self) -> ObservabilityConfig:
        """How its processes log."""
        return ObservabilityConfig(log_format=self.log_format, log_level=self.log_level)

    @property
    def connections_each(self) -> int:
        """Most connections of clients of one process."""
        return ceil(self.max_connections / self.workers)

    @property
    def watched_namespaces(self) -> tuple[str, ...]:
        """Namespaces that are watched; none: all."""
        return tuple(one.strip() for one in self.namespaces.split(",") if one.strip())

    def _refuse(self, name: str, wanted: str) -> NoReturn:
        flag = name.replace("_", "-")
        raise SettingsError(f"--{flag} is {getattr(self, name)!r}: it takes {wanted}")


def parse(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> GatewaySettings:
    """Settings from flags and variables; flags win.

    Raises
    ------
    SettingsError
        A value is malformed or out of its range, or a variable is unknown.
    """
    variables = os.environ if environment is None else environment
    texts = documentation(GatewaySettings)
    known = {one.name: one for one in fields(GatewaySettings)}
    for name in variables:
        if name.startswith(_PREFIX) and name.removeprefix(_PREFIX).lower() not in known:
            raise SettingsError(f"unknown variable {name}: see --help for those there are")
    parser = argparse.ArgumentParser(
        prog="python -m quire_gateway",
        description="Route OpenAI's API to many engines until SIGTERM.",
    )
    for name, one in known.items():
        given = variables.get(_PREFIX + name.upper())
        default = one.default if given is None else _read(name, given, type(one.default))
        text = texts[name] if one.default == "" else f"{texts[name]} Default: {one.default}."
        flag, shown = "--" + name.replace("_", "-"), text.replace("%", "%%")
        if isinstance(one.default, bool):
            action = argparse.BooleanOptionalAction
            parser.add_argument(flag, action=action, default=default, help=shown)
        else:
            parser.add_argument(flag, type=type(one.default), default=default, help=shown)
    return GatewaySettings(**vars(parser.parse_args(argv)))


def _read(name: str, text: str, kind: type) -> object:
    try:
        return _TRUTHS[text.lower()] if kind is bool else kind(text)
    except (ValueError, KeyError) as error:
        raise SettingsError(f"{_PREFIX}{name.upper()} is {text!r}, not {kind.__name__}") from error
