"""How many engines a drained node may take at a time."""

from typing import Any

from quire_operator.planner import names
from quire_operator.planner.observed import Observed


def disruption_budget(observed: Observed, num_replicas: int) -> dict[str, Any] | None:
    """At most one; None for a single engine, which would keep its node from being drained at all.

    Pods that are not ready may always be evicted: they serve nobody, and their nodes may be the
    reason.
    """
    if num_replicas < 2:
        return None
    service = observed.service
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "namespace": service.namespace,
            "name": names.engines_service_name(service.name),
            "labels": names.labels(service.name, "engines"),
        },
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": names.engine_selector(service.name)},
        },
    }
