"""From the store to what planning needs of one service."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from quire_operator.cluster.kinds import CONFIG_MAPS, DEPLOYMENTS, NODES, PODS
from quire_operator.cluster.store import Key, Store
from quire_operator.planner.claims import ALONE, Standing
from quire_operator.planner.last_engine import LastEngine, noted
from quire_operator.planner.names import (
    ACCELERATOR_LABEL,
    ROLE_LABEL,
    accelerator_of,
    deployment_name,
    routing_name,
)
from quire_operator.planner.observed import (
    Engine,
    Observed,
    Pod,
    SecretsSeen,
    deployment_from,
    node_from,
    pod_from,
)
from quire_operator.planner.settings import GatewayPlace
from quire_operator.reconciling.gateways import gateway_pods
from quire_operator.resource.reading import InferenceService


def observe(
    store: Store,
    service: InferenceService,
    *,
    engines: Mapping[str, Engine],
    secrets: SecretsSeen,
    root_secret: bytes,
    may_see_nodes: bool,
    gateway: GatewayPlace | None,
    standing: Standing = ALONE,
) -> Observed:
    """All that is known of a service."""
    return replace(
        observe_replicas(store, service),
        nodes=tuple(map(node_from, store.all(NODES.kind))) if may_see_nodes else None,
        engines=engines,
        last_engine=_noted_engine(store, service),
        secrets=secrets,
        gateways=gateway_pods(store, gateway),
        root_secret=root_secret,
        standing=standing,
    )


def observe_replicas(store: Store, service: InferenceService) -> Observed:
    """What was ordered for a service, and what runs: all that scaling looks at.

    Whose a Deployment is its name says: somebody may have changed its label.
    """
    deployments = {
        accelerator: replace(deployment_from(body), accelerator=accelerator)
        for body in store.parts(DEPLOYMENTS.kind, service.key)
        if _is_owned(body, service)
        and (accelerator := accelerator_of(service.name, body["metadata"]["name"]))
    }
    return Observed(
        service=service,
        deployments=deployments,
        pods=engine_pods(store, service.key),
    )


def _noted_engine(store: Store, service: InferenceService) -> LastEngine | None:
    """What the object with the routing document says of engines that are not there."""
    key = (service.namespace, routing_name(service.name))
    body = store.get(CONFIG_MAPS.kind, key)
    return noted(body["metadata"], service.spec.model.source) if body else None


def engine_pods(store: Store, service: Key) -> tuple[Pod, ...]:
    """The pods of a service's Deployments: others may have their labels, too."""
    return tuple(
        pod_from(body)
        for body in store.parts(PODS.kind, service)
        if _is_engine(body["metadata"], service[1])
    )


def _is_engine(metadata: Mapping[str, Any], service: str) -> bool:
    """Whether a pod is of a ReplicaSet that has the name of one of the service's Deployments."""
    labels = metadata["labels"]
    if labels.get(ROLE_LABEL) != "engine":
        return False
    deployment = deployment_name(service, labels.get(ACCELERATOR_LABEL, ""))
    owner = ("ReplicaSet", f"{deployment}-{labels.get('pod-template-hash', '')}")
    return any(
        (one["kind"], one["name"]) == owner
        for one in metadata.get("ownerReferences") or ()
        if one.get("controller")
    )


def _is_owned(body: Mapping[str, object], service: InferenceService) -> bool:
    """Whether it is this service's, and not of one of the same name that was deleted."""
    metadata = body["metadata"]
    owners = metadata.get("ownerReferences", []) if isinstance(metadata, dict) else []
    return any(owner.get("uid") == service.uid for owner in owners)
