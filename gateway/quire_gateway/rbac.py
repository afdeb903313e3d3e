"""What a gateway may do in a cluster: read the operator's documents and where engines are.

No Secrets: keys are in the documents, by their hashes, and the secret that internal tokens are made
of is mounted. Labels cannot bound rights, so ConfigMaps of all names may be read where it watches.
"""

from collections.abc import Sequence
from typing import Any

Body = dict[str, Any]

NAME = "quire-gateway"
_READ = ["list", "watch"]
_API = "rbac.authorization.k8s.io"


def rules() -> list[Body]:
    """Rights over what it watches."""
    return [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": _READ},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": _READ},
    ]


def objects(namespace: str, *, watched: Sequence[str] = ()) -> list[Body]:
    """Return the account and its rights.

    Parameters
    ----------
    namespace
        Where the gateway runs.
    watched
        Namespaces that it watches; none: all.
    """
    metadata = {"namespace": namespace, "name": NAME}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    if not watched:
        return [account, *_granted("Cluster", {"name": NAME}, namespace)]
    found = [account]
    for one in watched:
        found += _granted("", {"namespace": one, "name": NAME}, namespace)
    return found


def _granted(scope: str, metadata: Body, account: str) -> list[Body]:
    role = {"kind": f"{scope}Role", "metadata": metadata, "rules": rules()}
    binding = {
        "kind": f"{scope}RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _API, "kind": f"{scope}Role", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": account}],
    }
    return [{"apiVersion": f"{_API}/v1"} | one for one in (role, binding)]
