"""Kinds of objects that the operator reads or writes."""

from typing import NamedTuple

from quire_operator.resource.crd import API_VERSION, KIND, PLURAL


class Kind(NamedTuple):
    """One kind of object."""

    api_version: str
    kind: str
    plural: str
    is_namespaced: bool = True

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """Path of an object, or of all of them."""
        root = "/api/" if "/" not in self.api_version else "/apis/"
        scope = f"/namespaces/{namespace}" if namespace and self.is_namespaced else ""
        return f"{root}{self.api_version}{scope}/{self.plural}" + (f"/{name}" if name else "")


SERVICES = Kind(API_VERSION, KIND, PLURAL)
DEPLOYMENTS = Kind("apps/v1", "Deployment", "deployments")
PODS = Kind("v1", "Pod", "pods")
NODES = Kind("v1", "Node", "nodes", is_namespaced=False)
SECRETS = Kind("v1", "Secret", "secrets")
EVENTS = Kind("v1", "Event", "events")
LEASES = Kind("coordination.k8s.io/v1", "Lease", "leases")

CONFIG_MAPS = Kind("v1", "ConfigMap", "configmaps")

HTTP_ROUTES = Kind("gateway.networking.k8s.io/v1", "HTTPRoute", "httproutes")
"""Watched only where they are wanted: not every cluster has the kind."""

MADE = (
    DEPLOYMENTS,
    CONFIG_MAPS,
    Kind("v1", "Service", "services"),
    Kind("discovery.k8s.io/v1", "EndpointSlice", "endpointslices"),
    Kind("networking.k8s.io/v1", "Ingress", "ingresses"),
    HTTP_ROUTES,
    Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
    Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
)
"""Kinds that the operator makes and watches, those with its label. It makes Secrets, too, and does
not watch them: that would need the right to read all that there are."""

BY_NAME = {one.kind: one for one in (SERVICES, PODS, NODES, SECRETS, EVENTS, LEASES, *MADE)}
