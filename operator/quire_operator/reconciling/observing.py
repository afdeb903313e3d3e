"""From the store to what planning needs of one service."""

from collections.abc import Mapping

from quire_operator.cluster.kinds import DEPLOYMENTS, NODES, PODS, SERVICES
from quire_operator.cluster.store import Key, Store, key_of
from quire_operator.planner.names import ROLE_LABEL, SERVICE_LABEL
from quire_operator.planner.observed import (
    Engine,
    Observed,
    SecretsSeen,
    deployment_from,
    node_from,
    pod_from,
)
from quire_operator.resource.reading import InferenceService


def observe(
    store: Store,
    service: InferenceService,
    *,
    engines: Mapping[str, Engine],
    secrets: SecretsSeen,
    root_secret: bytes,
    may_see_nodes: bool,
) -> Observed:
    """All that is known of a service."""
    deployments = [
        deployment_from(body)
        for body in store.parts(DEPLOYMENTS.kind, service.key)
        if _is_owned(body, service)
    ]
    return Observed(
        service=service,
        deployments={one.accelerator: one for one in deployments},
        pods=tuple(
            pod_from(body)
            for body in store.parts(PODS.kind, service.key)
            if body["metadata"]["labels"].get(ROLE_LABEL) == "engine"
        ),
        nodes=tuple(map(node_from, store.all(NODES.kind))) if may_see_nodes else None,
        engines=engines,
        secrets=secrets,
        gateway_addresses=gateway_addresses(store),
        root_secret=root_secret,
        name_owner=_name_owner(store, service),
    )


def gateway_addresses(store: Store) -> tuple[str, ...]:
    """Addresses of the gateway's pods that are ready."""
    pods = [
        pod_from(body)
        for body in store.all(PODS.kind)
        if body["metadata"].get("labels", {}).get(ROLE_LABEL) == "gateway"
        and SERVICE_LABEL not in body["metadata"]["labels"]
    ]
    return tuple(sorted(pod.address for pod in pods if pod.is_ready and pod.address))


def _is_owned(body: Mapping[str, object], service: InferenceService) -> bool:
    """Whether it is this service's, and not of one of the same name that was deleted."""
    metadata = body["metadata"]
    owners = metadata.get("ownerReferences", []) if isinstance(metadata, dict) else []
    return any(owner.get("uid") == service.uid for owner in owners)


def _name_owner(store: Store, service: InferenceService) -> str | None:
    """The oldest service with the same host and model name, if it is another one."""
    if service.spec.ingress is None:
        return None
    mine = (service.spec.ingress.host, service.served_name)
    rivals: list[tuple[str, Key]] = []
    for body in store.all(SERVICES.kind):
        spec, metadata = body["spec"], body["metadata"]
        host = (spec.get("ingress") or {}).get("host")
        name = spec.get("model", {}).get("name") or metadata["name"]
        if (host, name) == mine and "deletionTimestamp" not in metadata:
            rivals.append((metadata["creationTimestamp"], key_of(body)))
    oldest = min(rivals, default=None)
    if oldest is None or oldest[1] == service.key:
        return None
    return "/".join(oldest[1])
