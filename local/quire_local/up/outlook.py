"""Whether a service can still become ready as things are.

In a cluster somebody may add a node or a Secret, so the operator goes on for ever. Here everything
is in the file and the flags, and whoever started the run may be a script that waits for it.
"""

from collections.abc import Sequence

from quire_local.up.engine import Engine
from quire_local.up.inventory import Claim, Inventory
from quire_operator.planner.memory import MISFIT_REASONS
from quire_operator.resource.accelerator import WITHOUT_GPU, Accelerator
from quire_operator.resource.reading import InferenceService
from quire_operator.resource.status import InferenceServiceStatus

_WRONG_USAGE = 2
"""Status of an engine whose configuration is wrong: the next start says the same."""
_MOST_FAILURES = 3
"""Failed starts in a row, for any other reason."""


def why_hopeless(
    service: InferenceService,
    status: InferenceServiceStatus,
    engines: Sequence[Engine],
    inventory: Inventory,
) -> str | None:
    """Why a service that was never ready will not be; None while it may."""
    if status.desired_replicas == 0 or status.ready_replicas > 0:
        return None
    conditions = {one.type: one for one in status.conditions}
    degraded = conditions["Degraded"]
    if degraded.reason in MISFIT_REASONS and not engines:
        return degraded.message
    living = [one for one in engines if not one.is_ending]
    if not living or not all(_is_hopeless(one, inventory) for one in living):
        return None
    if all(one.node is None for one in living):
        if any(_could_take(one, inventory) for one in service.spec.accelerators):
            return None  # after its provisionTimeout the planner goes on to the next
        return conditions["GPUsAvailable"].message
    return degraded.message


def _could_take(accelerator: Accelerator, inventory: Inventory) -> bool:
    claim = Claim(products=accelerator.products, count=accelerator.count)
    needs_none = accelerator.name in WITHOUT_GPU
    return accelerator.max_replicas > 0 and (needs_none or inventory.could_ever(claim))


def _is_hopeless(engine: Engine, inventory: Inventory) -> bool:
    if engine.node is None:
        return not inventory.could_ever(engine.claim)
    if engine.was_ready:
        return False
    is_wrong = engine.last.status == _WRONG_USAGE or bool(engine.config_problem)
    return is_wrong or engine.num_failures >= _MOST_FAILURES
