"""One service that cannot be looked at stops the scaling of no other."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Any, cast

from prometheus_client import CollectorRegistry, generate_latest

from quire_operator.cluster.api import ClusterApi
from quire_operator.cluster.kinds import DEPLOYMENTS, SERVICES
from quire_operator.cluster.store import Store
from quire_operator.reconciling.queue import WorkQueue
from quire_operator.reconciling.scaling import Scaling
from quire_operator.reconciling.scaling_metrics import ScalingMetrics
from quire_operator.reconciling.scaling_victims import Victims
from quire_operator.resource.crd import API_VERSION, KIND
from tests.unit.control.builders import GATEWAY, L4

_SECONDS = 60


def _fill(store: Store, name: str, conditions: list[dict[str, str]]) -> None:
    metadata = {"namespace": "team", "name": name, "uid": name, "generation": 1}
    spec = {"model": {"source": "hf://a/b"}, "accelerators": [L4]}
    body: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata}
    store.put(SERVICES.kind, body | {"spec": spec})
    deployment = {
        "metadata": {
            "namespace": "team",
            "name": f"{name}-l4",
            "labels": {"serving.quire.dev/service": name},
            "ownerReferences": [{"uid": name}],
        },
        "spec": {"replicas": 1},
        "status": {"conditions": conditions},
    }
    store.put(DEPLOYMENTS.kind, deployment)


async def test_the_others_are_decided_and_it_is_said() -> None:
    store, registry = Store(), CollectorRegistry()
    # a time that the API server takes, and nobody can read
    _fill(store, "bad", [{"type": "Progressing", "lastUpdateTime": "0000-01-01T00:00:00Z"}])
    _fill(store, "good", [])
    queue = WorkQueue(time.monotonic)
    api = cast("ClusterApi", None)  # nobody is drained
    scaling = Scaling(
        store=store,
        queue=queue,
        victims=Victims(api, root_secret=lambda: b"r", token_epoch=0, clock=time.monotonic),
        metrics=ScalingMetrics(registry),
        gateway=GATEWAY,
        gateway_urls=(),
        seconds=0.1,
        may_see_nodes=False,
        clock=time.monotonic,
        now=lambda: datetime.now(UTC),
    )
    running = asyncio.create_task(scaling.run())
    try:
        async with asyncio.timeout(_SECONDS):
            assert await queue.take() == ("team", "good")
    finally:
        running.cancel()
        await scaling.close()
    told = [one for one in generate_latest(registry).decode().splitlines() if "Failed" in one]
    assert len(told) == 1
    assert 'service="team/bad"' in told[0]
