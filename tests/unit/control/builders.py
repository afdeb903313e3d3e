"""Services, pods and clusters as tests want them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import to_builtins

from quire_operator.planner.observed import (
    Deployment,
    GatewayPods,
    Node,
    Observed,
    Pod,
    deployment_from,
    may_room_help,
)
from quire_operator.planner.plan import Plan, plan
from quire_operator.planner.settings import GatewayPlace, PlannerSettings
from quire_operator.resource.reading import InferenceService, read

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GATEWAY = GatewayPlace(namespace="quire-system", selector=(("app", "quire-gateway"),), port=8080)
SETTINGS = PlannerSettings(engine_image="quire-engine:1", gateway=GATEWAY)
L4: dict[str, Any] = {
    "name": "l4",
    "products": ["NVIDIA-L4"],
    "costPerHour": "0.80",
    "maxReplicas": 8,
}
H100: dict[str, Any] = {
    "name": "h100",
    "products": ["NVIDIA-H100-80GB-HBM3"],
    "costPerHour": "7.50",
}
CPU: dict[str, Any] = {"name": "cpu"}


def service(
    *accelerators: Mapping[str, Any], annotations: Mapping[str, str] | None = None, **spec: Any
) -> InferenceService:
    """A service; fields of the spec by keyword, as in YAML."""
    return read(
        {
            "apiVersion": "serving.quire.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {
                "namespace": "models",
                "name": "chat",
                "uid": "u1",
                "generation": 1,
                "annotations": annotations or {},
            },
            "spec": {
                "model": {"source": "hf://acme/thing@main"},
                "accelerators": list(accelerators or [L4]),
                **spec,
            },
        }
    )


def gateways(*addresses: str) -> dict[bool, GatewayPods]:
    """Gateways without TLS that take requests."""
    return {False: GatewayPods(taking=addresses)}


def external(replicas: int) -> dict[str, Any]:
    """Parts of a spec whose replicas are written from outside."""
    return {"replicas": replicas, "scaling": {"mode": "External"}}


@dataclass
class Cluster:
    """Deployments, a scheduler and kubelets, as simple as can be: one GPU for each replica.

    What the plan says is applied at once; `settle` lets pods be made, scheduled and become ready.
    """

    service: InferenceService
    free_gpus: dict[str, int]
    """By accelerator; what is not named has none."""
    now: datetime = NOW
    pods: list[Pod] = field(default_factory=list)
    deployments: dict[str, Deployment] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    settings: PlannerSettings = SETTINGS
    scheduler_words: str = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    """What is said of a pod that finds no GPU."""
    bad_revisions: set[str] = field(default_factory=set)
    """Hashes of pod inputs whose engines never become ready."""
    progress: dict[str, tuple[tuple[int, ...], datetime]] = field(default_factory=dict)
    """By accelerator, counts of its pods and since when they are so."""
    num_made: int = 0
    least_ready: int = 0
    """Fewest ready pods that there were since it was set."""
    objects: list[dict[str, Any]] = field(default_factory=list)

    def observe(self) -> Observed:
        """What the planner sees."""
        return Observed(
            service=self.service,
            deployments=dict(self.deployments),
            pods=tuple(self.pods),
            nodes=tuple(self.nodes),
            root_secret=b"s" * 32,
            gateways=gateways("10.0.0.1"),
        )

    def plan(self) -> Plan:
        """The plan for now, without applying it."""
        return plan(self.observe(), self.settings, self.now)

    def apply(self) -> Plan:
        """Plan and apply once."""
        made = self.plan()
        self.objects = list(made.objects)
        wanted = [one for one in made.objects if one["kind"] == "Deployment"]
        self.deployments = {}
        for body in wanted:
            one = deployment_from(body)
            _, since = self.progress.get(one.accelerator, ((), None))
            self.deployments[one.accelerator] = replace(one, progressed_at=since)
        # what has no Deployment any more is collected
        self.pods = [pod for pod in self.pods if pod.accelerator in self.deployments]
        self.service = with_status(self.service, made)
        return made

    def step(self) -> None:
        """Apply the plan, then let controllers, scheduler and kubelets act once."""
        self.apply()
        for one in list(self.deployments.values()):
            self._control(one)
        self._schedule()
        self._run()
        self._count()
        self.least_ready = min(self.least_ready, self.num_ready())

    def settle(self, steps: int = 30) -> None:
        """Until nothing changes."""
        for _ in range(steps):
            before = (tuple(self.pods), dict(self.deployments))
            self.step()
            if before == (tuple(self.pods), dict(self.deployments)):
                return
        raise AssertionError(f"not settled after {steps} steps: {self.pods}")

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)

    def num_ready(self, accelerator: str | None = None) -> int:
        """Ready pods."""
        return sum(pod.is_ready for pod in self.pods if accelerator in (None, pod.accelerator))

    def change(self, **spec: Any) -> None:
        """Change fields of the spec, as `kubectl apply` would."""
        body = to_builtins(self.service.spec) | spec
        self.service = read(_body(self.service, body, self.service.generation + 1))

    def _control(self, deployment: Deployment) -> None:
        """One move of the Deployment's controller: make, or take away, one pod."""
        mine = [pod for pod in self.pods if pod.accelerator == deployment.accelerator]
        new = [pod for pod in mine if pod.template_hash == deployment.inputs_hash]
        old = [pod for pod in mine if pod.template_hash != deployment.inputs_hash]
        rolling = self._rolling(deployment.accelerator)
        num_ready = sum(pod.is_ready for pod in mine)
        surplus = len(mine) - deployment.replicas
        # unready ones, too, stay as long as new ones are not ready in the place of others
        num_unready = sum(not pod.is_ready for pod in new)
        may_go = surplus + rolling["maxUnavailable"] > num_unready
        if surplus > 0 and not old:
            self.pods.remove(min(new, key=lambda pod: (pod.is_ready, pod.is_scheduled)))
        elif old and may_go and (unready := [pod for pod in old if not pod.is_ready]):
            self.pods.remove(unready[0])
        elif old and num_ready > deployment.replicas - rolling["maxUnavailable"]:
            self.pods.remove(old[0])
        elif len(new) < deployment.replicas and surplus < rolling["maxSurge"]:
            self._make(deployment)

    def _rolling(self, accelerator: str) -> dict[str, int]:
        body = next(
            one
            for one in self.objects
            if one["kind"] == "Deployment" and one["metadata"]["name"] == f"chat-{accelerator}"
        )
        rolling: dict[str, int] = body["spec"]["strategy"]["rollingUpdate"]
        return rolling

    def _make(self, deployment: Deployment) -> None:
        self.num_made += 1
        pod = Pod(
            name=f"chat-{deployment.accelerator}-{self.num_made}",
            accelerator=deployment.accelerator,
            template_hash=deployment.inputs_hash,
            created_at=self.now + timedelta(microseconds=self.num_made),
        )
        self.pods.append(pod)

    def _schedule(self) -> None:
        for index, pod in enumerate(self.pods):
            if pod.is_scheduled:
                continue
            used = sum(one.is_scheduled for one in self.pods if one.accelerator == pod.accelerator)
            if used < self.free_gpus.get(pod.accelerator, 0):
                self.pods[index] = replace(
                    pod, is_scheduled=True, unschedulable_since=None, scheduler_message=""
                )
            elif pod.unschedulable_since is None:
                self.pods[index] = replace(
                    pod,
                    unschedulable_since=self.now,
                    scheduler_message=self.scheduler_words,
                    may_room_help=may_room_help(self.scheduler_words),
                )

    def _run(self) -> None:
        self.pods = [
            replace(pod, is_ready=pod.is_scheduled and pod.template_hash not in self.bad_revisions)
            for pod in self.pods
        ]

    def _count(self) -> None:
        for name, one in self.deployments.items():
            mine = [pod for pod in self.pods if pod.accelerator == name]
            new = [pod for pod in mine if pod.template_hash == one.inputs_hash]
            num_ready = sum(pod.is_ready for pod in mine)
            counts = len(mine), len(new), num_ready
            if self.progress.get(name, ((), None))[0] != counts:
                self.progress[name] = counts, self.now
            self.deployments[name] = replace(
                one,
                is_observed=True,
                num_pods=len(mine),
                num_updated=len(new),
                num_ready=num_ready,
                progressed_at=self.progress[name][1],
            )


def with_status(service: InferenceService, made: Plan) -> InferenceService:
    """A service whose status was written as planned."""
    body = _body(service, to_builtins(service.spec), service.generation)
    return read(body | {"status": to_builtins(made.status)})


def _body(service: InferenceService, spec: dict[str, Any], generation: int) -> dict[str, Any]:
    return {
        "apiVersion": "serving.quire.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {
            "namespace": service.namespace,
            "name": service.name,
            "uid": service.uid,
            "generation": generation,
            "annotations": dict(service.annotations),
        },
        "spec": spec,
        "status": to_builtins(service.status),
    }
