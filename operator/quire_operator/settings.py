"""The operator's settings: flags of `python -m quire_operator`, or QUIRE_OPERATOR_* variables."""

import argparse
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import NoReturn

from quire_engine.config.fields import documentation
from quire_operator.errors import SettingsError
from quire_operator.planner.settings import GatewayPlace, PlannerSettings, RouteParent

_PREFIX = "QUIRE_OPERATOR_"
_CHOICES = {
    "image_pull_policy": ("Always", "IfNotPresent", "Never"),
    "log_format": ("json", "text"),
}
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}
_ABOVE_ZERO = (
    "lease_seconds",
    "resync_seconds",
    "poll_seconds",
    "secrets_seconds",
    "workers",
)


@dataclass(frozen=True, kw_only=True)
class OperatorSettings:
    """How one operator runs."""

    engine_image: str = "ghcr.io/quire/quire-engine:0.1.0"
    """Image of new engines."""
    cpu_engine_image: str = ""
    """Image of new engines on accelerators without a GPU; default: the same."""
    image_pull_policy: str = "IfNotPresent"
    """Pull policy of engine images."""
    namespaces: str = ""
    """Namespaces to work in, with commas between; default: all. Then nodes are not looked at."""
    operator_namespace: str = "quire-system"
    """Namespace that the operator runs in: of its Lease and its root secret."""
    gateway_namespace: str = ""
    """Namespace of the gateway's pods; default: there is none, and a service's address leads to
    its engines, which take nothing without its internal token."""
    gateway_port: int = 8080
    """Port of the gateway's pods."""
    gateway_tls: bool = False
    """Whether they speak TLS there: then services have port 443, and an ingress is told so."""
    gateway_urls: str = ""
    """URLs of gateways' management ports, with commas between, where they are not pods of
    gateway_namespace; default: its pods, at port 8090."""
    http_route_gateway: str = ""
    """Gateway of the Gateway API that leads to services with `ingress`, as NAMESPACE/NAME or
    NAMESPACE/NAME/LISTENER; then HTTPRoutes are made. Default: Ingresses are."""
    scale_seconds: float = 5.0
    """How often traffic is looked at and replicas are decided, where there is a gateway. 0 leaves
    them as `spec.replicas` says."""
    monitoring_namespace: str = "monitoring"
    """Namespace of Prometheus, which may read the engines' metrics."""
    cluster_domain: str = "cluster.local"
    """Ending of the cluster's names."""
    root_secret: str = "quire-root"  # noqa: S105 - the name of an object
    """Secret with the root that internal tokens are made from; made if there is none."""
    lease: str = "quire-operator"
    """Lease that the replicas of the operator elect a leader by."""
    lease_seconds: float = 15.0
    """How long a leader that is gone keeps the others waiting."""
    resync_seconds: float = 300.0
    """How often everything is looked at anew, whatever was or was not heard."""
    poll_seconds: float = 15.0
    """How often engines are asked for their state."""
    secrets_seconds: float = 60.0
    """How often Secrets that services name are read again, those with API keys among them."""
    workers: int = 8
    """Services that are worked on at the same time."""
    http_host: str = "0.0.0.0"  # noqa: S104 - probes and Prometheus come from outside the pod
    """Address of health and metrics."""
    http_port: int = 8081
    """Port of /healthz, /readyz and /metrics."""
    token_epoch: int = 0
    """Epoch of the internal tokens; raise it to rotate them."""
    log_format: str = "json"
    """json, or text for people."""

    def __post_init__(self) -> None:
        """Refuse what would fail later, or never be noticed."""
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                self._refuse(name, f"one of {', '.join(choices)}")
        for name in _ABOVE_ZERO:
            if not 0 < getattr(self, name) < math.inf:
                self._refuse(name, "a number above 0")
        for name in ("gateway_port", "http_port"):
            if not 1 <= getattr(self, name) <= 65535:
                self._refuse(name, "a port, 1 to 65535")
        watched = self.watched_namespaces
        if watched and self.gateway_namespace and self.gateway_namespace not in watched:
            raise SettingsError(
                f"--namespaces lacks {self.gateway_namespace}, which --gateway-namespace names: add"
                " it, or the gateway's pods are not seen, and services lead nowhere"
            )
        for name in ("token_epoch", "scale_seconds"):
            if not 0 <= getattr(self, name) < math.inf:
                self._refuse(name, "0 or more")
        self._check_route_gateway()

    def _check_route_gateway(self) -> None:
        parts = self.http_route_gateway.split("/")
        if self.http_route_gateway and (not all(parts) or len(parts) not in (2, 3)):
            self._refuse("http_route_gateway", "NAMESPACE/NAME or NAMESPACE/NAME/LISTENER")

    def _refuse(self, name: str, wanted: str) -> NoReturn:
        flag = name.replace("_", "-")
        raise SettingsError(f"--{flag} is {getattr(self, name)!r}: it takes {wanted}")

    @property
    def watched_namespaces(self) -> tuple[str, ...]:
        """Namespaces to work in; none stands for all."""
        return tuple(name.strip() for name in self.namespaces.split(",") if name.strip())

    @property
    def fleet_urls(self) -> tuple[str, ...]:
        """Where gateways tell of their fleet; none stands for the gateway's pods."""
        return tuple(one.strip().rstrip("/") for one in self.gateway_urls.split(",") if one.strip())

    @property
    def route_parent(self) -> RouteParent | None:
        """The Gateway of `http_route_gateway`; None: there is none."""
        if not self.http_route_gateway:
            return None
        namespace, name, *listener = self.http_route_gateway.split("/")
        return RouteParent(namespace=namespace, name=name, listener="".join(listener))

    def for_planner(self) -> PlannerSettings:
        """What planning needs of them."""
        gateway = None
        if self.gateway_namespace:
            selector = (("serving.quire.dev/role", "gateway"),)
            gateway = GatewayPlace(
                namespace=self.gateway_namespace,
                selector=selector,
                port=self.gateway_port,
                is_tls=self.gateway_tls,
            )
        return PlannerSettings(
            engine_image=self.engine_image,
            cpu_engine_image=self.cpu_engine_image or None,
            image_pull_policy=self.image_pull_policy,
            operator_namespace=self.operator_namespace,
            gateway=gateway,
            route_parent=self.route_parent,
            cluster_domain=self.cluster_domain,
            monitoring_namespace=self.monitoring_namespace,
            token_epoch=self.token_epoch,
        )


def parse(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> OperatorSettings:
    """Settings from flags and variables; flags win.

    Raises
    ------
    SettingsError
        A value is malformed or out of its range, or a variable is unknown.
    """
    variables = os.environ if environment is None else environment
    texts = documentation(OperatorSettings)
    parser = argparse.ArgumentParser(
        prog="python -m quire_operator",
        description="Watch InferenceServices and run them until SIGTERM.",
    )
    known = {one.name: one for one in fields(OperatorSettings)}
    for name in variables:
        if name.startswith(_PREFIX) and name.removeprefix(_PREFIX).lower() not in known:
            raise SettingsError(f"unknown variable {name}: see --help for those there are")
    for name, one in known.items():
        given = variables.get(_PREFIX + name.upper())
        kind = type(one.default)
        default = one.default if given is None else _read(name, given, kind)
        shown = (texts[name] + _default(one.default)).replace("%", "%%")
        flag = "--" + name.replace("_", "-")
        if kind is bool:
            action = argparse.BooleanOptionalAction
            parser.add_argument(flag, action=action, default=default, help=shown)
        else:
            parser.add_argument(flag, type=kind, default=default, help=shown)
    return OperatorSettings(**vars(parser.parse_args(argv)))


def _default(value: object) -> str:
    """The default as --help says it; of an empty text the setting's own says what it stands for."""
    return "" if value == "" else f" Default: {value}."


def _read(name: str, text: str, kind: type) -> object:
    try:
        return _TRUTHS[text.lower()] if kind is bool else kind(text)
    except (ValueError, KeyError) as error:
        wanted = "true or false" if kind is bool else kind.__name__
        raise SettingsError(f"{_PREFIX}{name.upper()} is {text!r}, not {wanted}") from error
