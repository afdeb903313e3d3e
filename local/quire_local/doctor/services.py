"""What stands in the way of services: images, their own conditions, monitoring."""

from typing import Any

from quire_local.cluster.api import ClusterApi
from quire_local.doctor.finding import Findings, fail, ok, warn
from quire_local.doctor.installation import pod_trouble, pods_of
from quire_operator.resource.crd import API_VERSION, PLURAL

Body = dict[str, Any]
_Place = tuple[str, str]
"""Namespace and name."""

_FEW = 5
"""Services that are well and named one by one."""

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
    """Whether they are Ready, and their figures fresh; what is so of many is said once."""
    ready: list[str] = []
    suspended: list[str] = []
    others: dict[str, list[_Place]] = {}
    silent: dict[str, list[_Place]] = {}
    if not services:
        yield ok("services", "none yet: kubectl apply -f manifests/samples/smollm2-cpu.yaml")
    for service in services:
        place = service["metadata"]["namespace"], service["metadata"]["name"]
        conditions = {one["type"]: one for one in service.get("status", {}).get("conditions") or ()}
        found = conditions.get("Ready")
        if found is None:
            others.setdefault("no operator has looked at it", []).append(place)
        elif found["status"] == "True":
            ready.append("/".join(place))
        elif found["reason"] == "Suspended":
            suspended.append("/".join(place))
        else:
            words = f"not ready: {found['reason']}: {found['message']}"
            others.setdefault(words, []).append(place)
        fresh = conditions.get("MetricsFresh")
        if fresh is not None and fresh["status"] == "False":
            silent.setdefault(f"{fresh['reason']}: {fresh['message']}", []).append(place)
    yield from _all_well("ready", ready)
    yield from _all_well("suspended, as its spec asks", suspended)
    for check, told in (("services", others), ("metrics", silent)):
        for words, places in told.items():
            namespace, name = places[0]
            more = f" and {len(places) - 1} more" if len(places) > 1 else ""
            fix = f"kubectl --namespace {namespace} describe qis {name}"
            yield warn(check, f"{namespace}/{name}{more}: {words}", fix)


def _all_well(how: str, names: list[str]) -> Findings:
    """Services of which there is nothing to mend: by name, where they are few."""
    if len(names) > _FEW:
        yield ok("services", f"{names[0]} and {len(names) - 1} more: {how}")
    else:
        yield from (ok("services", f"{name} is {how}") for name in names)


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
