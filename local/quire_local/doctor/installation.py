"""What is installed in a cluster: the kind, the operator with its rights, the gateway."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from quire_local.cluster.api import ClusterApi, ClusterError, RefusedError
from quire_local.cluster.pods import PodClient, management_of
from quire_local.doctor.finding import Finding, Findings, fail, ok, warn
from quire_operator import rbac
from quire_operator.planner.names import ROLE_LABEL
from quire_operator.resource.crd import NAME, VERSION, crd

Body = dict[str, Any]

_OLDEST = (1, 31)
_INSTALL = (
    "helm install quire charts/quire --namespace quire-system --create-namespace --wait"
    " --set image.registry=YOURS"
)
_UPGRADE_KIND = "kubectl apply --server-side --force-conflicts -f manifests/crds"
_LEASE = "quire-operator"
_LEASE_SECONDS = 60.0


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
        return fail("kind", words, "kubectl apply --server-side -f manifests/crds")
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


def check_operator(api: ClusterApi) -> Findings:
    """Whether it runs, leads, and may do what it does."""
    pods = pods_of(api, "operator")
    if not pods:
        yield fail("operator", f"no pod has the label {ROLE_LABEL}=operator", _INSTALL)
        return
    yield from _readiness("operator", pods)
    for namespace in sorted({pod["metadata"]["namespace"] for pod in pods}):
        here = [pod for pod in pods if pod["metadata"]["namespace"] == namespace]
        yield _leader(api, namespace, {pod["metadata"]["name"] for pod in here})
        yield from _rights(api, here[0])


def check_gateway(api: ClusterApi) -> Findings:
    """Whether it runs, and tells what it sees."""
    pods = pods_of(api, "gateway")
    if not pods:
        words = f"no pod has the label {ROLE_LABEL}=gateway: nobody is answered"
        yield fail("gateway", words, _INSTALL)
        return
    yield from _readiness("gateway", pods)
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
            return f"{waiting['reason']}: {waiting.get('message', '')}".strip(": ")
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message", condition.get("reason", "")))
    return ""


def _readiness(role: str, pods: list[Body]) -> Iterator[Finding]:
    ready = [pod for pod in pods if is_ready(pod)]
    if ready:
        yield ok(role, f"{len(ready)} of {len(pods)} pods ready, {_image(ready[0])}")
    for pod in pods:
        if pod in ready:
            continue
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        words = f"pod {name} is not ready: {pod_trouble(pod) or 'it does not say why'}"
        fix = f"kubectl --namespace {namespace} describe pod {name}"
        yield warn(role, words, fix) if ready else fail(role, words, fix)


def _image(pod: Body) -> str:
    return str(pod["spec"]["containers"][0]["image"])


def _leader(api: ClusterApi, namespace: str, pods: set[str]) -> Finding:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{_LEASE}"
    logs = f"kubectl --namespace {namespace} logs --selector {ROLE_LABEL}=operator"
    lease = api.get(path)
    holder = lease["spec"].get("holderIdentity") if lease else None
    if not holder:
        return fail("leader", f"no operator of namespace {namespace} leads: nothing is done", logs)
    age = _age(lease["spec"]["renewTime"])
    if age > max(_LEASE_SECONDS, 3.0 * lease["spec"].get("leaseDurationSeconds", 15)):
        words = f"{holder} leads and has not said so for {age:.0f} s"
        return fail("leader", words, logs)
    if not any(holder.startswith(name) for name in pods):
        words = f"{holder} leads by its Lease, and no such pod is there: another does when it ends"
        return warn("leader", words, logs)
    return ok("leader", holder)


def _age(stamp: str) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(stamp)).total_seconds()


def _rights(api: ClusterApi, pod: Body) -> Findings:
    """Each right that the operator needs, as the API server would decide."""
    namespace = pod["metadata"]["namespace"]
    account = pod["spec"].get("serviceAccountName", "default")
    user = f"system:serviceaccount:{namespace}:{account}"
    try:
        missing = [words for words in _questions(pod) if not _may(api, user, *words)]
    except RefusedError as error:
        fix = "ask an administrator to run quire doctor"
        yield warn("rights", f"those of {user} cannot be seen: {error}", fix)
        return
    if missing:
        few = ", ".join(f"{verb} {what}" for verb, what, _ in missing[:5])
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        fix = f"helm upgrade quire charts/quire --namespace {namespace} --reuse-values"
        yield fail("rights", f"{user} may not {few}{more}", fix)
    else:
        yield ok("rights", f"{user} may do all that it needs")


def _questions(pod: Body) -> Iterator[tuple[str, str, str | None]]:
    """Verb, resource.group, and the namespace, or None for all of them."""
    flags = [flag for one in pod["spec"]["containers"] for flag in one.get("args") or ()]
    named = [flag.partition("=")[2] for flag in flags if flag.startswith("--namespaces=")]
    watched: list[str | None] = [part for part in ",".join(named).split(",") if part]
    rules = rbac.rules() if watched else [*rbac.rules(), *rbac.node_rules()]
    for where in watched or [None]:
        for rule in rules:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield verb, f"{resource}.{rule['apiGroups'][0]}".rstrip("."), where


def _may(api: ClusterApi, user: str, verb: str, what: str, namespace: str | None) -> bool:
    resource, _, group = what.partition(".")
    name, _, part = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": name, "subresource": part}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": user,
            "resourceAttributes": attributes | ({"namespace": namespace} if namespace else {}),
        },
    }
    answer = api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    return bool(answer["status"]["allowed"])


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
