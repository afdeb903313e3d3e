"""The operator of a cluster: whether it runs and leads alone, and has its rights."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import combinations
from typing import Any

from quire_local.cluster.api import ClusterApi, RefusedError
from quire_local.doctor.finding import Finding, Findings, fail, ok, warn
from quire_local.doctor.installation import INSTALL, pods_of, readiness
from quire_operator import rbac
from quire_operator.planner.names import ROLE_LABEL

Body = dict[str, Any]

_LEASE = "quire-operator"
_LEASE_SECONDS = 60.0


def check_operator(api: ClusterApi) -> Findings:
    """Whether it runs, leads, and may do what it does."""
    pods = pods_of(api, "operator")
    if not pods:
        yield fail("operator", f"no pod has the label {ROLE_LABEL}=operator", INSTALL)
        return
    yield from readiness(api, "operator", pods)
    by_namespace = {pod["metadata"]["namespace"]: pod for pod in pods}
    yield from _against_each_other(by_namespace)
    for namespace in sorted(by_namespace):
        here = [pod for pod in pods if pod["metadata"]["namespace"] == namespace]
        yield _leader(api, namespace, {pod["metadata"]["name"] for pod in here})
        yield from _rights(api, here[0])


def _against_each_other(by_namespace: Mapping[str, Body]) -> Findings:
    """Operators of two installations that serve the same namespaces."""
    for one, other in combinations(sorted(by_namespace), 2):
        first, second = _watched(by_namespace[one]), _watched(by_namespace[other])
        common = first & second if first and second else first | second
        if first and second and not common:
            continue
        where = ", ".join(sorted(common)) or "all namespaces"
        words = f"those of namespaces {one} and {other} both serve {where}, against each other"
        fix = f"helm uninstall quire --namespace {other}   # or give each its own `namespaces`"
        yield fail("operator", words, fix)


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
        fix = f"helm upgrade quire charts/quire --namespace {namespace} --reset-then-reuse-values"
        yield fail("rights", f"{user} may not {few}{more}", fix)
    else:
        yield ok("rights", f"{user} may do all that it needs")


def _questions(pod: Body) -> Iterator[tuple[str, str, str | None]]:
    """Verb, resource.group, and the namespace, or None for all of them."""
    watched: list[str | None] = [*sorted(_watched(pod))]
    rules = rbac.rules() if watched else [*rbac.rules(), *rbac.node_rules()]
    for where in watched or [None]:
        for rule in rules:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield verb, f"{resource}.{rule['apiGroups'][0]}".rstrip("."), where


def _watched(pod: Body) -> set[str]:
    """Namespaces that an operator serves; empty: all."""
    flags = [flag for one in pod["spec"]["containers"] for flag in one.get("args") or ()]
    named = [flag.partition("=")[2] for flag in flags if flag.startswith("--namespaces=")]
    return {part for part in ",".join(named).split(",") if part}


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
