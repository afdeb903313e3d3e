"""The class of an Ingress whose service names none: the one that the API server would give it now.

That is asked by making an Ingress that is not kept. So the operator needs no right to read classes,
and what a cluster's own admission chooses counts, too.
"""

from quire_operator.cluster.api import Body, ClusterApi
from quire_operator.cluster.kinds import BY_NAME
from quire_operator.cluster.store import key_of
from quire_operator.errors import ApiError, RetryableError

KIND = "Ingress"


async def with_class(api: ClusterApi, body: Body) -> Body:
    """Return an Ingress as it is to be, together with its class, if it is to have one."""
    name = body["spec"].get("ingressClassName") or await _chosen(api, body)
    return body | {"spec": body["spec"] | ({"ingressClassName": name} if name else {})}


async def _chosen(api: ClusterApi, body: Body) -> str | None:
    kind, (namespace, name) = BY_NAME[KIND], key_of(body)
    ours = {one: body["metadata"].get(one, {}) for one in ("labels", "annotations")}
    path = body["spec"]["rules"][0]["http"]["paths"][0]
    trial: Body = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": ours | {"namespace": namespace, "generateName": "quire-class-"},
        # not its hosts: there are admissions that refuse the same host twice
        "spec": {"defaultBackend": path["backend"]},
    }
    try:
        made: Body | None = await api.create(kind, namespace, trial, is_kept=False)
    except RetryableError:
        raise
    except ApiError:  # by a quota or a policy: then whatever class it has stays
        made = await api.get(kind, namespace, name)
    found: str | None = (made or trial)["spec"].get("ingressClassName")
    return found
