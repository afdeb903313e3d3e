"""What the operator is configured with, and planning needs."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GatewayPlace:
    """Where the gateway runs."""

    namespace: str
    """Namespace of its pods."""
    selector: tuple[tuple[str, str], ...]
    """Labels of its pods."""
    port: int = 8080
    """Port that its pods listen on."""


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
    """Where the gateway runs; None: requests go to the engines directly."""
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
