"""What is found in a service's pods: who waits for a node, who cannot start, who is ready."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from quire_operator.planner.last_words import last_words
from quire_operator.planner.observed import Deployment, Observed, Pod
from quire_operator.planner.placement import wanted_replicas

_IMAGE_REASONS = frozenset(
    ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
)
_CONFIG_REASONS = frozenset(
    ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
)
_MAX_MESSAGE = 1000


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """Why pods do not run."""

    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Findings:
    """A service's pods, summed up."""

    num_wanted: int
    """Replicas that the user or scaling wants."""
    num_pods: int
    num_ready: int
    num_updated_ready: int
    """Ready ones of the newest revision."""
    num_old_ready: int
    """Ready ones of other revisions."""
    is_rolling: bool
    trouble: Trouble | None
    """The worst reason why a pod does not run."""
    waiting: Mapping[str, str]
    """The scheduler's words by accelerator that has no node."""
    num_unseen: int
    """Pods that have no node, and that the scheduler has said nothing of."""


def find(observed: Observed, inputs: Mapping[str, str]) -> Findings:
    """Sum the pods up.

    Parameters
    ----------
    inputs
        By accelerator, the hash of what its pods are to be made of: what was asked for a moment ago
        is rolling out before anybody has begun it.
    """
    pods = [pod for pod in observed.pods if not pod.is_ending]
    newest = _newest(pods)
    unbegun = {
        name
        for name, one in observed.deployments.items()
        if one.inputs_hash != inputs.get(name, one.inputs_hash)
        or (one.is_observed and not one.num_updated)
    }
    current = [
        pod for pod in pods if pod.template_hash in newest and pod.accelerator not in unbegun
    ]
    return Findings(
        num_wanted=0 if observed.service.spec.suspend else wanted_replicas(observed),
        num_pods=len(pods),
        num_ready=sum(pod.is_ready for pod in pods),
        num_updated_ready=sum(pod.is_ready for pod in current),
        num_old_ready=sum(pod.is_ready for pod in pods if pod not in current),
        is_rolling=any(
            _is_rolling(one, inputs.get(one.accelerator), was_rolling=_was_rolling(observed))
            for one in observed.deployments.values()
        ),
        trouble=next(_troubles(pods), None),
        waiting={pod.accelerator: pod.scheduler_message for pod in pods if pod.unschedulable_since},
        num_unseen=sum(not pod.is_scheduled and pod.unschedulable_since is None for pod in pods),
    )


def _is_rolling(deployment: Deployment, inputs: str | None, *, was_rolling: bool) -> bool:
    """Whether pods are of another revision than is asked for; none at all are not."""
    if deployment.replicas == 0 or deployment.num_pods == 0:
        return False
    if inputs is not None and deployment.inputs_hash != inputs:
        return True
    if not deployment.is_observed:
        return was_rolling  # its controller has not counted yet
    return deployment.num_pods > deployment.num_updated


def _was_rolling(observed: Observed) -> bool:
    return any(one.reason == "RollingOut" for one in observed.service.status.conditions)


def _newest(pods: Sequence[Pod]) -> set[str]:
    """The template hash of each accelerator's newest pod."""
    newest: dict[str, Pod] = {}
    for pod in pods:
        other = newest.get(pod.accelerator)
        if other is None or pod.created_at > other.created_at:
            newest[pod.accelerator] = pod
    return {pod.template_hash for pod in newest.values()}


def _troubles(pods: Sequence[Pod]) -> Iterator[Trouble]:
    for pod in sorted(pods, key=lambda pod: pod.created_at, reverse=True):
        if pod.is_ready:
            continue
        if pod.waiting_reason in _IMAGE_REASONS:
            yield Trouble(reason="ImagePullFailed", message=_of_image(pod))
        elif pod.waiting_reason in _CONFIG_REASONS:
            yield Trouble(
                reason="ContainerConfigInvalid", message=f"{pod.name}: {pod.waiting_message}"
            )
        elif pod.last_exit_reason == "OOMKilled":
            yield Trouble(
                reason="OutOfMemory",
                message=f"{pod.name} was killed for memory: raise"
                " accelerators[].pod.resources.limits.memory, or take a smaller model",
            )
        elif pod.waiting_reason == "CrashLoopBackOff" or pod.last_exit_code:
            yield Trouble(reason="EngineFailed", message=_of_crash(pod))


def _of_image(pod: Pod) -> str:
    return f"{pod.name} cannot pull {pod.image}: {pod.waiting_message}"[:_MAX_MESSAGE]


def _of_crash(pod: Pod) -> str:
    said = last_words(pod.last_exit_message)
    restarts = f"{pod.num_restarts} restart{'' if pod.num_restarts == 1 else 's'}"
    ended = f"ended with status {pod.last_exit_code}, {restarts}"
    return f"{pod.name} {ended}: {said or 'it said nothing; see kubectl logs'}"[:_MAX_MESSAGE]
