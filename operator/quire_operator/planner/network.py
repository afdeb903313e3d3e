"""How requests reach a service, and who may reach its engines.

    ingress -> Service NAME (no selector) -> gateway pods (EndpointSlice, written here) -> engines

An Ingress may only name Services of its own namespace, and the gateway runs in another one: so the
Service has no selector, and the operator keeps its endpoints. Without a gateway the Service selects
the engines themselves. Its ports: see `entrance`.
"""

from itertools import chain
from typing import Any

from quire_operator.planner import names
from quire_operator.planner.entrance import (
    SPARE_PATH,
    TLS,
    Entrance,
    endpoint_slices,
    ways_in,
)
from quire_operator.planner.hosts import host
from quire_operator.planner.network_paths import ENGINE, engine_paths, policy_spec
from quire_operator.planner.observed import Observed
from quire_operator.planner.outside import outside_ports
from quire_operator.planner.settings import PlannerSettings, RouteParent
from quire_operator.resource.reading import InferenceService
from quire_operator.resource.spec import Ingress

Body = dict[str, Any]

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
"""The same where gateways speak TLS. Contour reads it from the Service, Traefik from the port."""
TLS_SERVICE_ANNOTATIONS = {"projectcontour.io/upstream-protocol.tls": str(TLS.port)}


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
    ways = sorted(ways_in(observed, settings))
    ports = [_port(one.port, "http", one.name) for one in ways]
    way_in["spec"] = {"type": "ClusterIP", "ports": ports}
    gateway = settings.gateway
    if gateway is None:
        way_in["spec"]["selector"] = names.engine_selector(service.name)
        return [engines, way_in]
    if TLS in ways:
        way_in["metadata"]["annotations"] = TLS_SERVICE_ANNOTATIONS
    slices = [endpoint_slices(observed, one, gateway.port) for one in ways]
    return [engines, way_in, *chain.from_iterable(slices)]


def from_outside(observed: Observed, settings: PlannerSettings) -> Body | None:
    """The way in from outside the cluster, if there is to be one: an Ingress or an HTTPRoute."""
    wanted = observed.service.spec.ingress
    if wanted is None or host(observed.service, settings) is None:
        return None
    if settings.route_parent is not None:
        return _http_route(observed, wanted, settings, settings.route_parent)
    return _ingress(observed, wanted, settings)


def _http_route(
    observed: Observed, wanted: Ingress, settings: PlannerSettings, parent: RouteParent
) -> Body:
    """Certificates and addresses are the Gateway's; of time limits there are none."""
    service = observed.service
    attached = {"namespace": parent.namespace, "name": parent.name}
    if parent.listener:
        attached["sectionName"] = parent.listener
    rules: list[Body] = [
        {
            "backendRefs": [{"name": service.name, "port": one.port}],
            "timeouts": {"request": "0s", "backendRequest": "0s"},
        }
        for one in ways_in(observed, settings)
    ]
    for rule in rules[1:]:
        rule["matches"] = [{"path": {"type": "Exact", "value": SPARE_PATH}}]
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
        "spec": {"parentRefs": [attached], "hostnames": [wanted.host], "rules": rules},
    }


def _ingress(observed: Observed, wanted: Ingress, settings: PlannerSettings) -> Body:
    service = observed.service
    entrance, *spare = ways_in(observed, settings)
    paths = [_path("/", "Prefix", service, entrance)]
    paths += [_path(SPARE_PATH, "Exact", service, one) for one in spare]
    spec: Body = {"rules": [{"host": wanted.host, "http": {"paths": paths}}]}
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
            | (TLS_ANNOTATIONS if entrance.is_tls else {})
            | dict(wanted.annotations),
        },
        "spec": spec,
    }


def _path(path: str, kind: str, service: InferenceService, entrance: Entrance) -> Body:
    backend = {"service": {"name": service.name, "port": {"name": entrance.name}}}
    return {"path": path, "pathType": kind, "backend": backend}


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
    scheme = ways_in(observed, settings)[0].name
    return f"{scheme}://{service.name}.{service.namespace}.svc.{settings.cluster_domain}/v1"


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
