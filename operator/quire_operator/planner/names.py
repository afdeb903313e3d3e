"""Names and labels of what the operator makes for a service."""

MANAGER = "quire-operator"
"""Field manager of all objects."""
STATUS_MANAGER = "quire-operator-status"
"""Field manager of the status: another one, or an apply of it would drop the object's fields."""

SERVICE_LABEL = "serving.quire.dev/service"
ACCELERATOR_LABEL = "serving.quire.dev/accelerator"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
ROLE_LABEL = "serving.quire.dev/role"
"""What a part is for: engine, live-config, internal-token, routing, ..."""
GATEWAY_TLS_LABEL = "serving.quire.dev/gateway-tls"
"""Of a gateway's pod: true where it speaks TLS, false where it does not."""

INPUTS_ANNOTATION = "serving.quire.dev/pod-inputs"
"""Of a Deployment: a hash of all that the user chose for its pods."""
TEMPLATE_ANNOTATION = "serving.quire.dev/pod-template"
"""Of a Deployment: its pod template as it was made: a newer operator does not restart it."""
LAST_ENGINE_ANNOTATION = "serving.quire.dev/last-engine"
"""What an engine of the service said last, on the routing document's object."""
SEAL_ANNOTATION = "serving.quire.dev/pod-template-seal"
"""Of a Deployment: that the two above are the operator's."""
RESTART_ANNOTATION = "serving.quire.dev/restarted-at"
"""Of a service: another value restarts its engines, with the operator's newest image."""

PIN_KEY = "pin"
"""In a service's live ConfigMap: the commit that its model's revision is, for its engines."""

GPU_RESOURCE = "nvidia.com/gpu"
PRODUCT_LABEL = "nvidia.com/gpu.product"

ENGINE_PORT = 8000


def labels(service: str, role: str, accelerator: str | None = None) -> dict[str, str]:
    """Labels of one part of a service."""
    common = {
        "app.kubernetes.io/name": "quire-engine" if role == "engine" else "quire",
        "app.kubernetes.io/instance": service,
        "app.kubernetes.io/component": role,
        "app.kubernetes.io/part-of": "quire",
        MANAGED_BY_LABEL: MANAGER,
        SERVICE_LABEL: service,
        ROLE_LABEL: role,
    }
    return common | ({ACCELERATOR_LABEL: accelerator} if accelerator else {})


def engine_selector(service: str, accelerator: str | None = None) -> dict[str, str]:
    """Labels that select the engine pods of a service, or of one of its accelerators."""
    selector = {SERVICE_LABEL: service, ROLE_LABEL: "engine"}
    return selector | ({ACCELERATOR_LABEL: accelerator} if accelerator else {})


def deployment_name(service: str, accelerator: str) -> str:
    """Name of the Deployment of one accelerator."""
    return f"{service}-{accelerator}"


def accelerator_of(service: str, deployment: str) -> str | None:
    """The accelerator of a service's Deployment by its name; None: it is no such name."""
    prefix = f"{service}-"
    return deployment.removeprefix(prefix) if deployment.startswith(prefix) else None


def engines_service_name(service: str) -> str:
    """Name of the headless Service of all engine pods."""
    return f"{service}-engines"


def live_config_name(service: str) -> str:
    """Name of the ConfigMap with the limits that engines change while running."""
    return f"{service}-live"


def internal_token_name(service: str) -> str:
    """Name of the Secret with the tokens that gateway and operator know engines by."""
    return f"{service}-internal"


def routing_name(service: str) -> str:
    """Name of the ConfigMap that gateways watch."""
    return f"{service}-routing"
