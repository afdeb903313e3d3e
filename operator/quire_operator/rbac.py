"""What the operator may do in a cluster: these rights and no others.

Cluster-wide, or in single namespaces: then without nodes. In its own namespace it also has its
Lease and its root secret. Secrets it gets by the names that services have for them; it can neither
list nor watch them.
"""

from typing import Any

from quire_operator.planner.names import MANAGER
from quire_operator.resource.crd import GROUP, PLURAL

Body = dict[str, Any]

_WATCH = ["get", "list", "watch"]
_MAKE = ["get", "list", "watch", "create", "patch", "delete"]
_EVENTS = {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}


def rules() -> list[Body]:
    """Rights over services and what is made for them; everywhere, or in single namespaces."""
    return [
        {"apiGroups": [GROUP], "resources": [PLURAL], "verbs": _WATCH},
        {"apiGroups": [GROUP], "resources": [f"{PLURAL}/status"], "verbs": ["patch"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": _MAKE},
        {"apiGroups": [""], "resources": ["configmaps", "services"], "verbs": _MAKE},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "create", "patch"]},
        # patch: the pod that is to go is marked, so that no other one is taken
        {"apiGroups": [""], "resources": ["pods"], "verbs": [*_WATCH, "patch"]},
        {
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": _MAKE,
        },
        {
            # addresses in a slice may be of pods: the API server asks for the right to route there
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices/restricted"],
            "verbs": ["create"],
        },
        {
            "apiGroups": ["networking.k8s.io"],
            "resources": ["ingresses", "networkpolicies"],
            "verbs": _MAKE,
        },
        {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": _MAKE},
        _EVENTS,
    ]


def node_rules() -> list[Body]:
    """Rights over nodes, for an operator of the whole cluster."""
    return [{"apiGroups": [""], "resources": ["nodes"], "verbs": _WATCH}]


def route_rules() -> list[Body]:
    """Rights over HTTPRoutes, for an operator that makes them in place of Ingresses."""
    return [
        {
            "apiGroups": ["gateway.networking.k8s.io"],
            "resources": ["httproutes"],
            "verbs": _MAKE,
        }
    ]


def user_rules() -> dict[str, list[Body]]:
    """Rights over services for people, by the name of a role: to see them, and to change them."""
    change = ["create", "update", "patch", "delete", "deletecollection"]
    scale = {"apiGroups": [GROUP], "resources": [f"{PLURAL}/scale"]}
    return {
        "view": [
            {"apiGroups": [GROUP], "resources": [PLURAL, f"{PLURAL}/status"], "verbs": _WATCH}
        ],
        "edit": [
            {"apiGroups": [GROUP], "resources": [PLURAL], "verbs": change},
            scale | {"verbs": ["get", "update", "patch"]},
        ],
    }


def own_rules(lease: str, root_secret: str) -> list[Body]:
    """Rights in the operator's own namespace."""
    return [
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "verbs": ["create"],
        },
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": [lease],
            "verbs": ["get", "update"],
        },
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": [root_secret],
            "verbs": ["get"],
        },
    ]


def cluster_wide(namespace: str, lease: str, root_secret: str) -> list[Body]:
    """All objects for an operator that works in every namespace."""
    return [
        _account(namespace),
        _role("ClusterRole", None, MANAGER, [*rules(), *node_rules()]),
        _binding("ClusterRoleBinding", None, MANAGER, "ClusterRole", namespace),
        *_own(namespace, lease, root_secret),
    ]


def in_namespaces(
    namespace: str, lease: str, root_secret: str, *, watched: list[str]
) -> list[Body]:
    """All objects for an operator that works in some namespaces."""
    found = [_account(namespace), *_own(namespace, lease, root_secret)]
    for one in watched:
        found.append(_role("Role", one, MANAGER, rules()))
        found.append(_binding("RoleBinding", one, MANAGER, "Role", namespace))
    return found


def _own(namespace: str, lease: str, root_secret: str) -> list[Body]:
    name = f"{MANAGER}-own"
    return [
        _role("Role", namespace, name, own_rules(lease, root_secret)),
        _binding("RoleBinding", namespace, name, "Role", namespace),
    ]


def _account(namespace: str) -> Body:
    metadata = {"namespace": namespace, "name": MANAGER}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def _role(kind: str, namespace: str | None, name: str, granted: list[Body]) -> Body:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": _metadata(namespace, name),
        "rules": granted,
    }


def _binding(kind: str, namespace: str | None, name: str, role_kind: str, account: str) -> Body:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": _metadata(namespace, name),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": MANAGER, "namespace": account}],
    }


def _metadata(namespace: str | None, name: str) -> Body:
    return {"name": name} | ({"namespace": namespace} if namespace else {})
