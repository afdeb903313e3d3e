"""How requests reach a service, and who may reach its engines.

    ingress -> Service NAME (no selector) -> gateway pods (EndpointSlice, written here) -> engines

An Ingress may only name Services of its own namespace, and the gateway runs in another one: so the
Service has no selector, and the operator keeps its endpoints. Without a gateway the Service selects
the engines themselves.
"""

import ipaddress
from typing import Any

from quire_operator.planner import names
from quire_operator.planner.hosts import host
from quire_operator.planner.network_paths import ENGINE, engine_paths, policy_spec
from quire_operator.planner.observed import Observed
from quire_operator.planner.outside import outside_ports
from quire_operator.planner.settings import PlannerSettings, RouteParent
from quire_operator.resource.reading import InferenceService
from quire_operator.resource.spec import Ingress

Body = dict[str, Any]

_PLAIN, _TLS = ("http", 80), ("https", 443)
"""Name and port of a Service, by what its pods speak."""
HTTP_ROUTE_VERSION = "gateway.networking.k8s.io/v1"

STREAMING_ANNOTATIONS = {
    "nginx.ingress.kubernetes.io/proxy-buffering": "off",
    "nginx.ingress.kubernetes.io/proxy-read-timeout": "3600",
    "nginx.ingress.kubernetes.io/proxy-send-timeout": "3600",
    "nginx.ingress.kubernetes.io/proxy-body-size": "32m",
    "projectcontour.io/response-timeout": "infinity",
    "projectcontour.io/retry-on": "connect-failure,reset",
    "projectcontour.io/num-retries": "3",
    "haproxy.org/timeout-server": "3600s",
}
"""What controllers need to know: answers are streams that may be long and silent, and a request of
which nothing was answered may go to another gateway, for one that dies is noticed by failing."""
TLS_ANNOTATIONS = {
    "nginx.ingress.kubernetes.io/backend-protocol": "HTTPS",
    "haproxy.org/server-ssl": "true",
}
"""The same where gateways speak TLS; Contour and Traefik read it from the Service."""
TLS_SERVICE_ANNOTATIONS = {
    "projectcontour.io/upstream-protocol.tls": str(_TLS[1]),
    "traefik.ingress.kubernetes.io/service.serversscheme": "https",
}


def services(observed: Observed, settings: PlannerSettings) -> list[Body]:
    """The headless Service of all engines, and the one that requests come in by."""
    service = observed.service
    engines = _service(observed, names.engines_service_name(service.name), "engines")
    engines["spec"] = {
        "type": "ClusterIP",
        "clusterIP": "None",
        "selector": names.engine_selector(service.name),
        "ports": [_port(names.ENGINE_PORT, "http")],
    }
    way_in = _service(observed, service.name, "entrance")
    name, port = _entrance(settings)
    way_in["spec"] = {"type": "ClusterIP", "ports": [_port(port, "http", name)]}
    gateway = settings.gateway
    if gateway is None:
        way_in["spec"]["selector"] = names.engine_selector(service.name)
        return [engines, way_in]
    if gateway.is_tls:
        way_in["metadata"]["annotations"] = TLS_SERVICE_ANNOTATIONS
    return [engines, way_in, *_endpoint_slices(observed, name, gateway.port)]


def from_outside(observed: Observed, settings: PlannerSettings) -> Body | None:
    """The way in from outside the cluster, if there is to be one: an Ingress or an HTTPRoute."""
    wanted = observed.service.spec.ingress
    if wanted is None or host(observed.service, settings) is None:
        return None
    if settings.route_parent is not None:
        return _http_route(observed.service, wanted, settings.route_parent, _entrance(settings)[1])
    return _ingress(observed.service, wanted, settings)


def _entrance(settings: PlannerSettings) -> tuple[str, int]:
    """Name and number of the port of the Service that requests come in by."""
    return _TLS if settings.gateway is not None and settings.gateway.is_tls else _PLAIN


def _http_route(service: InferenceService, wanted: Ingress, parent: RouteParent, port: int) -> Body:
    """Certificates and addresses are the Gateway's; of time limits there are none."""
    attached = {"namespace": parent.namespace, "name": parent.name}
    if parent.listener:
        attached["sectionName"] = parent.listener
    rule = {
        "backendRefs": [{"name": service.name, "port": port}],
        "timeouts": {"request": "0s", "backendRequest": "0s"},
    }
    metadata: Body = {
        "namespace": service.namespace,
        "name": service.name,
        "labels": names.labels(service.name, "entrance"),
    }
    if wanted.annotations:
        metadata["annotations"] = dict(wanted.annotations)
    return {
        "apiVersion": HTTP_ROUTE_VERSION,
        "kind": "HTTPRoute",
        "metadata": metadata,
        "spec": {"parentRefs": [attached], "hostnames": [wanted.host], "rules": [rule]},
    }


def _ingress(service: InferenceService, wanted: Ingress, settings: PlannerSettings) -> Body:
    port = _entrance(settings)
    backend = {"service": {"name": service.name, "port": {"name": port[0]}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    spec: Body = {"rules": [{"host": wanted.host, "http": {"paths": [path]}}]}
    if wanted.class_name:
        spec["ingressClassName"] = wanted.class_name
    if wanted.tls_secret_name:
        spec["tls"] = [{"hosts": [wanted.host], "secretName": wanted.tls_secret_name}]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {
            "namespace": service.namespace,
            "name": service.name,
            "labels": names.labels(service.name, "entrance"),
            "annotations": STREAMING_ANNOTATIONS
            | (TLS_ANNOTATIONS if port == _TLS else {})
            | dict(wanted.annotations),
        },
        "spec": spec,
    }


def network_policy(observed: Observed, settings: PlannerSettings) -> Body:
    """Who may reach the engines, and whom they may reach: see `network_paths`."""
    service = observed.service
    paths = engine_paths(settings, outside_ports(service))
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "namespace": service.namespace,
            "name": names.engines_service_name(service.name),
            "labels": names.labels(service.name, "engines"),
        },
        "spec": policy_spec(ENGINE, paths, names.engine_selector(service.name), settings),
    }


def url_of(observed: Observed, settings: PlannerSettings) -> str:
    """Where to send requests."""
    service = observed.service
    wanted = service.spec.ingress
    if wanted and host(service, settings):
        scheme = "https" if wanted.tls_secret_name else "http"
        return f"{scheme}://{wanted.host}/v1"
    scheme, _ = _entrance(settings)
    return f"{scheme}://{service.name}.{service.namespace}.svc.{settings.cluster_domain}/v1"


def _endpoint_slices(observed: Observed, name: str, port: int) -> list[Body]:
    """The gateway's pods; one slice for each family of addresses, as the API wants it."""
    families: dict[str, list[str]] = {"IPv4": []}
    for address in sorted(observed.gateway_addresses):
        family = f"IPv{ipaddress.ip_address(address).version}"
        families.setdefault(family, []).append(address)
    ports = [{"name": name, "port": port, "protocol": "TCP"}]
    return [_slice(observed, family, several, ports) for family, several in families.items()]


def _slice(observed: Observed, family: str, addresses: list[str], ports: list[Body]) -> Body:
    service = observed.service
    own = names.labels(service.name, "entrance")
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": service.namespace,
            "name": f"{service.name}-gateway-{family.lower()}",
            "labels": own
            | {
                "kubernetes.io/service-name": service.name,
                "endpointslice.kubernetes.io/managed-by": names.MANAGER,
            },
        },
        "addressType": family,
        "ports": ports,
        "endpoints": [
            {"addresses": [address], "conditions": {"ready": True}} for address in addresses
        ],
    }


def _service(observed: Observed, name: str, role: str) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "namespace": observed.service.namespace,
            "name": name,
            "labels": names.labels(observed.service.name, role),
        },
    }


def _port(port: int, target: str, name: str = "http") -> Body:
    return {"name": name, "port": port, "targetPort": target, "protocol": "TCP"}
