"""Ways in from outside that services ask for: whether somebody serves them."""

from typing import Any

from quire_local.cluster.api import ClusterApi, RefusedError
from quire_local.doctor.finding import Finding, Findings, ok, warn
from quire_operator.cluster.kinds import HTTP_ROUTES
from quire_operator.planner.names import MANAGED_BY_LABEL, MANAGER

Body = dict[str, Any]
_Place = tuple[str, str]
"""Namespace and name."""

_CERT_MANAGER = "cert-manager.io/"


def check_ways_in(api: ClusterApi, services: list[Body]) -> Findings:
    """Whether an Ingress or HTTPRoute that services ask for would be served."""
    classes = {
        one["metadata"]["name"]: one["spec"].get("controller", "")
        for one in api.items("/apis/networking.k8s.io/v1/ingressclasses")
    }
    routes = _routes(api)
    wants = [one for one in services if one["spec"].get("ingress")]
    by_ingress = [one for one in wants if _place(one) not in routes]
    if classes:
        yield ok("ingress", ", ".join(f"{name} ({by})" for name, by in classes.items()))
    elif by_ingress:
        words = "no ingress class: services are reached inside the cluster alone"
        fix = "kubectl apply -f https://projectcontour.io/quickstart/contour.yaml   # or another"
        yield warn("ingress", words, fix)
    elif not routes:
        words = "no ingress class: services are reached inside the cluster alone, as none asks"
        yield ok("ingress", words)
    for service in wants:
        route = routes.get(_place(service))
        if route is not None:
            yield _way_by_route(route)
        elif classes:
            yield from _way_by_ingress(api, service, set(classes))


def check_certificates(api: ClusterApi, services: list[Body]) -> Findings:
    """Whether the Secrets are there from which controllers have the certificates of Ingresses.

    With an HTTPRoute certificates are the Gateway's. Shared Secrets are looked at once.
    """
    wants = [one for one in services if one["spec"].get("ingress", {}).get("tlsSecretName")]
    routes = _routes(api) if wants else {}
    users: dict[_Place, Body] = {}
    for service in wants:
        if _place(service) not in routes:
            secret = service["spec"]["ingress"]["tlsSecretName"]
            users.setdefault((_place(service)[0], secret), service)
    missing = 0
    for (namespace, secret), service in users.items():
        if not api.exists(f"/api/v1/namespaces/{namespace}/secrets/{secret}"):
            missing += 1
            yield _missing(namespace, secret, service)
    if users and not missing:
        yield ok("certificates", "Secrets that services name for TLS are there")


def _place(body: Body) -> _Place:
    return body["metadata"]["namespace"], body["metadata"]["name"]


def _routes(api: ClusterApi) -> dict[_Place, Body]:
    """HTTPRoutes of services; none where there is no such kind, or this user may not look."""
    try:
        found = api.items(HTTP_ROUTES.path(), labelSelector=f"{MANAGED_BY_LABEL}={MANAGER}")
    except RefusedError:
        return {}
    return {_place(one): one for one in found}


def _way_by_route(route: Body) -> Finding:
    namespace, name = _place(route)
    fix = f"kubectl --namespace {namespace} describe httproute {name}"
    parents = route.get("status", {}).get("parents") or ()
    conditions = [one for parent in parents for one in parent.get("conditions") or ()]
    if not any(one["type"] == "Accepted" for one in conditions):
        gateways = ", ".join(
            f"{one.get('namespace', namespace)}/{one['name']}"
            for one in route["spec"]["parentRefs"]
        )
        words = f"no controller has taken the HTTPRoute {namespace}/{name}: is there a Gateway"
        return warn("ingress", f"{words} {gateways}?", fix)
    for one in conditions:
        if one["type"] in ("Accepted", "ResolvedRefs") and one["status"] == "False":
            words = f"the HTTPRoute {namespace}/{name} leads nowhere"
            return warn("ingress", f"{words}: {one['reason']}: {one.get('message', '')}", fix)
    return ok("ingress", f"the HTTPRoute {namespace}/{name} is accepted")


def _way_by_ingress(api: ClusterApi, service: Body, classes: set[str]) -> Findings:
    namespace, name = _place(service)
    asked = service["spec"]["ingress"].get("className")
    if asked and asked not in classes:
        words = f"{namespace}/{name} asks for the class {asked}: there is {', '.join(classes)}"
        patch = f'{{"spec":{{"ingress":{{"className":"{min(classes)}"}}}}}}'
        fix = f"kubectl --namespace {namespace} patch qis {name} --type=merge --patch '{patch}'"
        yield warn("ingress", words, fix)
        return
    found = api.get(f"/apis/networking.k8s.io/v1/namespaces/{namespace}/ingresses/{name}")
    if found and not found.get("status", {}).get("loadBalancer", {}).get("ingress"):
        words = f"no controller has taken the Ingress {namespace}/{name}: it has no address"
        yield warn("ingress", words, f"kubectl --namespace {namespace} describe ingress {name}")


def _missing(namespace: str, secret: str, service: Body) -> Finding:
    name = "/".join(_place(service))
    words = f"{name} names the Secret {secret} for TLS, which is not there: its https has no"
    annotations = service["spec"]["ingress"].get("annotations") or {}
    if any(one.startswith(_CERT_MANAGER) for one in annotations):
        fix = f"kubectl --namespace {namespace} describe certificate {secret}"
        return warn("certificates", f"{words} certificate; cert-manager is to make it", fix)
    fix = f"kubectl --namespace {namespace} create secret tls {secret} --cert=tls.crt --key=tls.key"
    return warn("certificates", f"{words} certificate of its own", fix)
