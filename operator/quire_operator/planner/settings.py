"""What the operator is configured with, and planning needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class GatewayPlace:
    """Where the gateway runs."""

    namespace: str
    """Namespace of its pods."""
    selector: tuple[tuple[str, str], ...]
    """Labels of its pods."""
    port: int = 8080
    """Port that its pods listen on."""
    is_tls: bool = False
    """Whether TLS is spoken there."""

    def has(self, metadata: Mapping[str, Any]) -> bool:
        """Whether a pod of this metadata is the gateway's: elsewhere anybody may label a pod so."""
        labels = metadata.get("labels") or {}
        is_here = metadata.get("namespace") == self.namespace
        return is_here and labels.items() >= dict(self.selector).items()


@dataclass(frozen=True, kw_only=True)
class RouteParent:
    """The Gateway that HTTPRoutes attach to."""

    namespace: str
    name: str
    listener: str = ""
    """One of its listeners; empty: all that fit."""


@dataclass(frozen=True, kw_only=True)
class PlannerSettings:
    """What all services of one operator share."""

    engine_image: str
    """Image of new engines."""
    cpu_engine_image: str | None = None
    """Image of new engines of accelerators without a GPU; default: the same."""
    image_pull_policy: str = "IfNotPresent"
    """Of engine images."""
    operator_namespace: str = "quire-system"
    """Where the operator runs."""
    gateway: GatewayPlace | None = None
    """Where the gateway runs; None: the services' addresses lead to the engines."""
    route_parent: RouteParent | None = None
    """What leads in from outside, by HTTPRoutes; None: Ingresses do."""
    is_local: bool = False
    """Whether there is no cluster: then a gateway is always there, and needs no place."""
    cluster_domain: str = "cluster.local"
    """Ending of the cluster's names."""
    monitoring_namespace: str = "monitoring"
    """Where Prometheus runs: its pods may read the engines' metrics."""
    token_epoch: int = 0
    """Epoch of the internal tokens; raised to rotate them."""
    surge_patience_seconds: float = 30.0
    """How long a new pod of a rollout may wait for a GPU before old ones make room one by one."""
    retry_accelerator_seconds: float = 600.0
    """How long an accelerator without a node is passed over before it is tried again."""
