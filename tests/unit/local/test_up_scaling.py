"""What `quire up` lets the operator's scaling decide from."""

import asyncio
from datetime import UTC, datetime

from msgspec import structs

from quire_local.up.inventory import Inventory
from quire_local.up.scaling import LocalScaling
from quire_operator.planner.observed import Deployment, Observed
from tests.unit.control.builders import H100, service


def test_services_never_order_more_gpus_than_there_are() -> None:
    scaling = LocalScaling(Inventory({"h100": 1}, datetime.now(UTC)))
    ordered = Deployment(accelerator="h100", replicas=1, is_observed=True)
    spec = service(H100, scaling={"minReplicas": 0, "scaleToZeroAfter": "1h"})
    observed = [
        Observed(service=structs.replace(spec, name=name), deployments={"h100": ordered})
        for name in ("first", "second")
    ]

    asyncio.run(scaling.decide(observed, report=None))

    found = [scaling.add_to(one).scaled for one in observed]
    assert sum(one.replicas["h100"] for one in found if one is not None) == 1


def test_what_the_inventory_lacks_is_no_limit() -> None:
    """The engine that waits for it says so, and what to do."""
    scaling = LocalScaling(Inventory({"l4": 1}, datetime.now(UTC)))
    ordered = Deployment(accelerator="h100", replicas=1, is_observed=True)
    observed = Observed(service=service(H100), deployments={"h100": ordered})

    asyncio.run(scaling.decide([observed], report=None))

    found = scaling.add_to(observed).scaled
    assert found is not None
    assert found.replicas == {"h100": 1}
