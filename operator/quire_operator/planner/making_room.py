"""Whether new engine pods that find no node would have one if old ones went.

A rollout without a GPU to spare takes old pods away for new ones. Where these want what no node
has, or what others have, that would take the service away and help nobody: a typo in a product,
in a label, in a claim's name, or an amount that is too large for the nodes that old ones run on.
"""

from collections.abc import Iterable

from quire_operator.planner.names import GPU_RESOURCE
from quire_operator.planner.observed import Node, Observed, Pod
from quire_operator.planner.quantities import amount_of
from quire_operator.planner.settings import PlannerSettings
from quire_operator.resource.accelerator import WITHOUT_GPU, Accelerator
from quire_operator.resource.pod import Toleration


def old_ones_may_help(
    observed: Observed,
    accelerator: Accelerator,
    pods: Iterable[Pod],
    waiting: Iterable[Pod],
    settings: PlannerSettings,
) -> bool:
    """Whether a pod that waits could run where one of another revision does.

    What is not known stands in nobody's way: nodes may not be read, or a node not be seen yet.
    """
    hopeful = [pod for pod in waiting if pod.may_room_help]
    if not hopeful or settings.is_local or observed.nodes is None:
        return bool(hopeful)
    nodes = {node.name: node for node in observed.nodes}
    return any(
        pod.node not in nodes or _may_take(nodes[pod.node], accelerator)
        for pod in pods
        if pod.is_scheduled and any(_takes_place_of(pod, one) for one in hopeful)
    )


def _takes_place_of(old: Pod, new: Pod) -> bool:
    """Whether it is of a later revision: an old one that waits itself takes no new one's place."""
    return old.template_hash != new.template_hash and old.created_at <= new.created_at


def _may_take(node: Node, accelerator: Accelerator) -> bool:
    """Whether a node would take such a pod if it had nothing else to do."""
    return (
        node.is_ready
        and (not accelerator.products or node.product in accelerator.products)
        and all(
            node.labels.get(name) == value for name, value in accelerator.pod.node_selector.items()
        )
        and all(_is_tolerated(taint, accelerator) for taint in node.taints)
        and _has_enough(node, accelerator)
    )


def _is_tolerated(taint: tuple[str, str, str], accelerator: Accelerator) -> bool:
    key, value, effect = taint
    if effect == "PreferNoSchedule" or (
        key == GPU_RESOURCE and accelerator.name not in WITHOUT_GPU and effect == "NoSchedule"
    ):
        return True

    def tolerates(one: Toleration) -> bool:
        is_of_key = one.key in ("", key) and (one.operator == "Exists" or one.value == value)
        return is_of_key and one.effect in ("", effect)

    return any(map(tolerates, accelerator.pod.tolerations))


def _has_enough(node: Node, accelerator: Accelerator) -> bool:
    """Whether a node has as much of everything at all as one pod asks for."""
    if accelerator.name not in WITHOUT_GPU and node.num_gpus < accelerator.count:
        return False
    resources = accelerator.pod.resources
    for name, asked in {**resources.limits, **resources.requests}.items():
        wanted, most = amount_of(asked), amount_of(node.allocatable.get(name, 0))
        if node.allocatable and wanted is not None and most is not None and wanted > most:
            return False
    return True
