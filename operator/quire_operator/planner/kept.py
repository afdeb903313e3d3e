"""What runs on when scaling.mode Auto is left, until somebody sets spec.replicas anew.

spec.replicas is what a service began with under Auto, most often its default: if it counted as soon
as the mode was left, whoever freezes scaling under load would take away all that the load needs.
So the status says what Auto runs and what spec.replicas was; while that is the same, nobody has
said otherwise. It is in the status so that it outlives the operator.
"""

from collections.abc import Mapping

from quire_operator.planner.observed import Observed
from quire_operator.resource.status import KeptReplicas, ReplicasOn


def held(observed: Observed) -> KeptReplicas | None:
    """What stays, of a service whose mode is not Auto any more; None: spec.replicas counts.

    Where nothing ran, nothing stays: without Auto no request would ever bring a replica.
    """
    spec, kept = observed.service.spec, observed.service.status.kept_replicas
    if spec.scaling.mode == "Auto" or kept is None or kept.replicas == 0:
        return None
    return kept if kept.spec_replicas == spec.replicas else None


def held_on(observed: Observed) -> Mapping[str, int]:
    """What stays by accelerator; nothing where spec.replicas counts."""
    kept = held(observed)
    return {one.name: one.replicas for one in kept.accelerators} if kept else {}


def keep(observed: Observed, num_wanted: int, replicas: Mapping[str, int]) -> KeptReplicas | None:
    """What the status is to say.

    Parameters
    ----------
    num_wanted
        Replicas over all accelerators, without those whose stand-ins are wanted.
    replicas
        By accelerator.
    """
    spec = observed.service.spec
    if spec.scaling.mode != "Auto":
        return held(observed)
    if spec.suspend:
        return observed.service.status.kept_replicas
    return KeptReplicas(
        replicas=num_wanted,
        spec_replicas=spec.replicas,
        accelerators=tuple(
            ReplicasOn(name=name, replicas=count) for name, count in replicas.items()
        ),
    )
