"""What is installed in a cluster: the kind, pods, the gateway."""

from collections.abc import Mapping
from typing import Any

from quire_local.cluster.api import ClusterApi, ClusterError, RefusedError
from quire_local.cluster.pods import PodClient, management_of
from quire_local.doctor.finding import Finding, Findings, fail, ok, warn
from quire_operator.planner.names import ROLE_LABEL
from quire_operator.resource.crd import NAME, VERSION, crd

Body = dict[str, Any]

_OLDEST = (1, 31)
INSTALL = (
    "helm install quire charts/quire --namespace quire-system --create-namespace --wait"
    " --set image.registry=YOURS"
)
_APPLY_KIND = "kubectl apply --server-side -f manifests/crds"
"""No first step of who uses Helm: it refuses to install over a kind that it did not bring."""
_UPGRADE_KIND = "kubectl apply --server-side --force-conflicts -f manifests/crds"


def check_server(api: ClusterApi) -> Finding:
    """Its version; what cannot be reached raises."""
    found = api.get("/version")
    major, minor = int(found["major"]), int("".join(filter(str.isdigit, found["minor"])))
    words = f"{api.server} runs Kubernetes {found['gitVersion']}"
    if (major, minor) < _OLDEST:
        wanted = ".".join(map(str, _OLDEST))
        return fail("api server", f"{words}: {wanted} is needed", "upgrade the cluster")
    return ok("api server", words)


def check_kind(api: ClusterApi) -> Finding:
    """Whether InferenceService is there, and as new as this program."""
    found = api.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{NAME}")
    if found is None:
        words = "the cluster has no InferenceServices"
        return fail("kind", words, f"{INSTALL}   # without Helm: {_APPLY_KIND}")
    conditions = found.get("status", {}).get("conditions") or []
    if not any(one["type"] == "Established" and one["status"] == "True" for one in conditions):
        return fail("kind", f"{NAME} is not established", f"kubectl describe crd {NAME}")
    theirs = {one["name"]: one for one in found["spec"]["versions"]}
    if VERSION not in theirs:
        words = f"{NAME} has {', '.join(theirs)} and not {VERSION}"
        return fail("kind", words, _UPGRADE_KIND)
    ours = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema = theirs[VERSION]["schema"]["openAPIV3Schema"]
    missing, unknown = fields(ours) - fields(schema), fields(schema) - fields(ours)
    if missing:
        words = f"{NAME} is older than this quire: it lacks {_few(missing)}"
        return fail("kind", words, _UPGRADE_KIND)
    if unknown:
        words = f"{NAME} is newer than this quire: it has {_few(unknown)}, too"
        return warn("kind", words, "install the quire that the cluster has")
    return ok("kind", f"{NAME} {VERSION}, as this quire knows it")


def fields(schema: Mapping[str, Any], path: str = "") -> set[str]:
    """Paths of all fields of a schema."""
    found: set[str] = set()
    for name, part in schema.get("properties", {}).items():
        here = f"{path}.{name}".lstrip(".")
        found |= {here} | fields(part, here)
    if isinstance(items := schema.get("items"), dict):
        found |= fields(items, f"{path}[]")
    return found


def check_gateway(api: ClusterApi) -> Findings:
    """Whether it runs, and tells what it sees."""
    pods = pods_of(api, "gateway")
    if not pods:
        words = f"no pod has the label {ROLE_LABEL}=gateway: nobody is answered"
        yield fail("gateway", words, INSTALL)
        return
    yield from readiness(api, "gateway", pods)
    for pod in filter(is_ready, pods):
        yield _reach(api, pod)


def pods_of(api: ClusterApi, role: str) -> list[Body]:
    """Pods of a role, in all namespaces."""
    return api.items("/api/v1/pods", labelSelector=f"{ROLE_LABEL}={role}")


def is_ready(item: Body) -> bool:
    """Whether its condition Ready is True."""
    found = item.get("status", {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in found)


def pod_trouble(pod: Body) -> str:
    """Why a pod is not ready, in its own words; empty where it does not say."""
    status = pod.get("status", {})
    for container in status.get("containerStatuses") or ():
        waiting = container.get("state", {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            words = f"{waiting['reason']}: {waiting.get('message', '')}".strip(": ")
            return f"{words}{_last_line(container)}"
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message", condition.get("reason", "")))
    return ""


def _last_line(container: Body) -> str:
    """What a container said before it ended; empty where it said nothing."""
    ended = container.get("lastState", {}).get("terminated") or {}
    lines = str(ended.get("message") or "").strip().splitlines()
    return f"; it said last: {lines[-1][:300]}" if lines else ""


def readiness(api: ClusterApi, role: str, pods: list[Body]) -> Findings:
    """How many pods of a role are ready, and why the others are not."""
    ready = [pod for pod in pods if is_ready(pod)]
    if ready:
        yield ok(role, f"{len(ready)} of {len(pods)} pods ready, {_image(ready[0])}")
    for pod in pods:
        if pod in ready:
            continue
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        why = pod_trouble(pod) or _last_warning(api, pod) or "it does not say why"
        words = f"pod {name} is not ready: {why}"
        fix = f"kubectl --namespace {namespace} describe pod {name}"
        yield warn(role, words, fix) if ready else fail(role, words, fix)


def _last_warning(api: ClusterApi, pod: Body) -> str:
    """What was told of a pod last, such as a volume that cannot be mounted; empty: nothing."""
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    chosen = f"involvedObject.name={name},type=Warning"
    try:
        events = api.items(f"/api/v1/namespaces/{namespace}/events", fieldSelector=chosen)
    except RefusedError:
        return ""  # they are not for everybody
    stamps = ("lastTimestamp", "eventTime")
    last = max(events, key=lambda one: max(one.get(s) or "" for s in stamps), default={})
    return str(last.get("message", "")).strip()


def _image(pod: Body) -> str:
    return str(pod["spec"]["containers"][0]["image"])


def _reach(api: ClusterApi, pod: Body) -> Finding:
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    place = management_of(pod)
    client = PodClient(api, place)
    try:
        client.get("/readyz")
        has_metrics = b"quire_gateway_" in client.get("/metrics")
    except ClusterError as error:
        fix = f"kubectl --namespace {namespace} port-forward pod/{name} {place.port}"
        return warn("gateway answers", f"{name} could not be asked: {error}", fix)
    finally:
        client.close()
    words = "with metrics" if has_metrics else "without metrics"
    return ok("gateway answers", f"{name} is ready, {words}")


def _few(names: set[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - 3} more" if len(ordered) > 3 else ""
    return ", ".join(ordered[:3]) + more
