"""What stands in the way of services: images, ways in, their own conditions, monitoring."""

from typing import Any

from quire_local.cluster.api import ClusterApi
from quire_local.doctor.finding import Findings, fail, ok, warn
from quire_local.doctor.installation import pod_trouble, pods_of
from quire_operator.resource.crd import API_VERSION, PLURAL

Body = dict[str, Any]

_IMAGE_TROUBLE = ("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull")
_MONITORING = "monitoring.coreos.com"
_MONITORS = (
    "helm upgrade quire charts/quire --namespace quire-system --reset-then-reuse-values"
    " --set podMonitors.enabled=true --set prometheusRule.enabled=true"
)


def list_services(api: ClusterApi) -> list[Body]:
    """All of them."""
    return api.items(f"/apis/{API_VERSION}/{PLURAL}")


def check_images(api: ClusterApi) -> Findings:
    """Whether nodes get the images."""
    bad: dict[str, tuple[str, Body]] = {}
    for role in ("operator", "gateway", "engine"):
        for pod in pods_of(api, role):
            trouble = pod_trouble(pod)
            if trouble.partition(":")[0] in _IMAGE_TROUBLE:
                bad[pod["spec"]["containers"][0]["image"]] = trouble, pod
    for image, (trouble, pod) in bad.items():
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        fix = f"docker push {image}; kubectl --namespace {namespace} describe pod {name}"
        yield fail("images", f"{image} cannot be pulled: {trouble}", fix)
    if not bad:
        yield ok("images", "no pod waits for one")


def check_services(services: list[Body]) -> Findings:
    """Whether they are Ready, and their figures fresh."""
    silent: dict[str, list[tuple[str, str]]] = {}
    if not services:
        yield ok("services", "none yet: kubectl apply -f manifests/samples/smollm2-cpu.yaml")
    for service in services:
        name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
        fix = f"kubectl --namespace {namespace} describe qis {name}"
        conditions = {one["type"]: one for one in service.get("status", {}).get("conditions") or ()}
        ready = conditions.get("Ready")
        if ready is None:
            yield warn("services", f"{namespace}/{name}: no operator has looked at it", fix)
        elif ready["status"] != "True":
            words = f"{namespace}/{name} is not ready: {ready['reason']}: {ready['message']}"
            yield warn("services", words, fix)
        else:
            yield ok("services", f"{namespace}/{name} is ready")
        fresh = conditions.get("MetricsFresh")
        if fresh is not None and fresh["status"] == "False":
            silent.setdefault(f"{fresh['reason']}: {fresh['message']}", []).append(
                (namespace, name)
            )
    for words, whom in silent.items():
        namespace, name = whom[0]
        more = f" and {len(whom) - 1} more" if len(whom) > 1 else ""
        fix = f"kubectl --namespace {namespace} describe qis {name}"
        yield warn("metrics", f"{namespace}/{name}{more}: {words}", fix)


def check_ways_in(api: ClusterApi, services: list[Body]) -> Findings:
    """Whether an Ingress that services ask for would be served."""
    classes = {
        one["metadata"]["name"]: one["spec"].get("controller", "")
        for one in api.items("/apis/networking.k8s.io/v1/ingressclasses")
    }
    wants = [one for one in services if one["spec"].get("ingress")]
    if not classes:
        words = "no ingress class: services are reached inside the cluster alone"
        fix = "kubectl apply -f https://projectcontour.io/quickstart/contour.yaml   # or another"
        yield warn("ingress", words, fix) if wants else ok("ingress", f"{words}, as none asks")
        return
    told = ", ".join(f"{name} ({controller})" for name, controller in classes.items())
    yield ok("ingress", told)
    for service in wants:
        yield from _way_in(api, service, set(classes))


def _way_in(api: ClusterApi, service: Body, classes: set[str]) -> Findings:
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
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


def check_monitoring(api: ClusterApi) -> Findings:
    """Whether a Prometheus Operator is there; all works without."""
    group = api.get(f"/apis/{_MONITORING}/v1")
    if group is None:
        yield ok("monitoring", "no Prometheus Operator; all works without, quire top too")
        return
    monitors = api.items(f"/apis/{_MONITORING}/v1/podmonitors")
    ours = [one for one in monitors if one["metadata"]["name"].startswith("quire")]
    if ours:
        yield ok("monitoring", f"Prometheus Operator with {len(ours)} monitors of quire")
    else:
        words = "a Prometheus Operator is there, and no monitor of quire"
        yield warn("monitoring", words, _MONITORS)
