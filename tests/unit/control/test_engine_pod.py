"""The pods: what the user chose is in them, nothing more is allowed to them than they need."""

from dataclasses import replace
from typing import Any

import pytest

from quire_engine.config.engine import CacheConfig
from quire_engine.config.fields import by_name
from quire_engine.config.parse import parse
from quire_operator.planner.engine_flags import engine_flags, live_config
from quire_operator.planner.engine_pod import pod_template
from quire_operator.planner.memory import UTILIZATION, find_misfits
from quire_operator.planner.observed import Node
from quire_operator.resource.spec import OWNED_FLAGS
from tests.unit.control.builders import CPU, H100, L4, SETTINGS, Cluster, external, service

SIMULATED = L4 | {"simulate": {"gpu": "l4", "modelShape": "llama3-8b"}}


def pod(*accelerators: dict[str, Any], **spec: Any) -> dict[str, Any]:
    made = service(*accelerators, **spec)
    template = pod_template(made, made.spec.accelerators[0], SETTINGS)
    return {"labels": template["metadata"]["labels"], **template["spec"]}


def test_pod_security_restricted_is_met() -> None:
    made = pod(L4)
    container = made["containers"][0]

    assert made["securityContext"]["runAsNonRoot"] is True
    assert made["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert made["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "hostNetwork" not in made


def test_gpus_are_asked_for_on_nodes_with_the_products() -> None:
    made = pod(L4 | {"count": 2})
    terms = made["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]

    assert made["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert made["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": "2"}
    assert terms["nodeSelectorTerms"][0]["matchExpressions"] == [
        {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-L4"]}
    ]
    assert {"name": "shm", "emptyDir": {"medium": "Memory"}} in made["volumes"]


def test_an_accelerator_named_cpu_needs_no_gpu() -> None:
    made = pod(CPU)

    assert "affinity" not in made
    assert "tolerations" not in made
    assert made["containers"][0]["resources"] == {}
    assert "--device=cpu" in made["containers"][0]["args"]


def test_loading_is_the_startup_probes_and_the_drain_fits_before_the_kill() -> None:
    made = pod(L4, engine={"drainSeconds": 120})
    container = made["containers"][0]
    startup = container["startupProbe"]

    assert startup["periodSeconds"] * startup["failureThreshold"] >= 3600
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert made["terminationGracePeriodSeconds"] > 120


def test_overrides_are_in_the_pod() -> None:
    overrides = {
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "nodeSelector": {"zone": "a"},
        "resources": {"requests": {"cpu": 4, "memory": "16Gi"}},
        "env": [{"name": "A", "value": "b"}],
        "image": "mine:1",
        "imagePullSecrets": [{"name": "registry"}],
        "runtimeClassName": "nvidia",
        "priorityClassName": "high",
        "labels": {"team": "ml", "serving.quire.dev/role": "mine"},
    }
    made = pod(L4 | {"pod": overrides})
    container = made["containers"][0]

    assert {"key": "spot", "operator": "Exists"} in made["tolerations"]
    assert made["nodeSelector"] == {"zone": "a"}
    assert container["resources"]["requests"] == {
        "cpu": "4",
        "memory": "16Gi",
        "nvidia.com/gpu": "1",
    }
    assert {"name": "A", "value": "b"} in container["env"]
    assert container["image"] == "mine:1"
    assert made["imagePullSecrets"] == [{"name": "registry"}]
    assert (made["runtimeClassName"], made["priorityClassName"]) == ("nvidia", "high")
    assert made["labels"]["team"] == "ml"
    assert made["labels"]["serving.quire.dev/role"] == "engine"


def test_a_model_in_a_claim_is_mounted_read_only_and_a_token_comes_from_its_secret() -> None:
    claimed = pod(L4, model={"source": "pvc://weights/llama/8b", "cache": {"pvc": "cache"}})
    assert "--source=/models/llama/8b" in claimed["containers"][0]["args"]
    assert {"name": "cache", "persistentVolumeClaim": {"claimName": "cache"}} in claimed["volumes"]
    mounts = claimed["containers"][0]["volumeMounts"]
    assert {"name": "model", "mountPath": "/models", "readOnly": True} in mounts

    for path in ("../../etc/passwd", "a/../../../etc/passwd", "/../etc/passwd"):
        leaving = pod(L4, model={"source": f"pvc://weights/{path}"})["containers"][0]["args"]
        assert [one.replace("//", "/") for one in leaving if one.startswith("--source=")] == [
            "--source=/models/etc/passwd"
        ]

    token = pod(L4, model={"source": "hf://a/b", "tokenSecretRef": {"name": "hf", "key": "t"}})
    assert "--hf-token-file=/etc/quire/hub/token" in token["containers"][0]["args"]
    secret = {"secretName": "hf", "items": [{"key": "t", "path": "token"}]}
    assert {"name": "hub-token", "secret": secret} in token["volumes"]


@pytest.mark.parametrize("accelerator", [L4, CPU, SIMULATED])
def test_the_engine_understands_its_flags_and_its_file(accelerator: dict[str, Any]) -> None:
    made = service(
        accelerator,
        model={"source": "hf://a/b", "name": "m", "aliases": ["x", "y"], "maxModelLen": 4096},
        scaling={"slo": {"timeToFirstToken": "2s", "timePerOutputToken": "60ms"}},
        memoryPressure={"admission": 90, "background": 70, "target": 60},
    )
    flags = engine_flags(made, made.spec.accelerators[0])
    given = dict(flag.removeprefix("--").split("=", 1) for flag in flags)
    given.pop("config")
    config = parse({name.replace("-", "_"): text for name, text in given.items()}, {})

    assert config.model.served_model_name == "m"
    assert config.model.max_model_len == 4096
    assert (config.executor.simulate == "l4") == ("simulate" in accelerator)
    for section, values in live_config(made).items():
        for name in values:
            assert by_name()[name].section == section
    admission = live_config(made)["admission"]
    assert admission["admission_ceiling"] == 0.9
    assert admission["slo_time_per_output_token"] == pytest.approx(0.06)


def test_flags_that_other_fields_set_are_those_that_are_refused_among_extra_args() -> None:
    made = service(L4, model={"source": "hf://a/b", "maxModelLen": 64})
    given = {flag.split("=")[0] for flag in engine_flags(made, made.spec.accelerators[0])}

    assert {"--source", "--host", "--port", "--internal-token-file", "--max-num-seqs"} <= given
    assert set(OWNED_FLAGS) - given == {"--admission-ceiling", "--api-key", "--background-ceiling"}


def test_moving_a_threshold_restarts_no_pod() -> None:
    cluster = Cluster(service(L4, **external(2)), {"l4": 3})
    cluster.settle()
    made = cluster.num_made
    before = _object(cluster, "ConfigMap", "chat-live")

    cluster.change(memoryPressure={"admission": 85, "background": 60, "target": 50})
    cluster.settle()

    assert cluster.num_made == made
    assert _object(cluster, "ConfigMap", "chat-live") != before


def test_an_upgrade_of_the_operator_restarts_no_pod_until_it_is_asked_for() -> None:
    cluster = Cluster(service(L4, **external(2)), {"l4": 3})
    cluster.settle()
    made = cluster.num_made

    cluster.settings = replace(SETTINGS, engine_image="quire-engine:2", image_pull_policy="Always")
    cluster.settle()
    assert cluster.num_made == made

    restarted = {"serving.quire.dev/restarted-at": "2026-01-01"}
    cluster.service = service(L4, annotations=restarted, **external(2))
    cluster.settle()
    assert cluster.num_made == made + 2
    containers = _object(cluster, "Deployment", "chat-l4")["spec"]["template"]["spec"]["containers"]
    assert containers[0]["image"] == "quire-engine:2"


def test_a_change_that_pods_are_made_of_rolls_with_a_surge_and_loses_nothing() -> None:
    cluster = Cluster(service(L4, **external(2)), {"l4": 3})
    cluster.settle()
    cluster.least_ready = 2

    cluster.change(engine={"maxNumSeqs": 8})
    cluster.settle()

    assert cluster.least_ready == 2
    assert len({pod.template_hash for pod in cluster.pods}) == 1


def test_without_a_spare_gpu_it_rolls_one_by_one() -> None:
    cluster = Cluster(service(L4, **external(3)), {"l4": 3})
    cluster.settle()
    first = {pod.template_hash for pod in cluster.pods}
    cluster.least_ready = 3

    cluster.change(engine={"maxNumSeqs": 8})
    cluster.settle()
    assert cluster.plan().look_again_at is not None
    cluster.wait(31)
    cluster.settle(60)

    assert not first & {pod.template_hash for pod in cluster.pods}
    assert cluster.num_ready() == 3
    assert cluster.least_ready == 2


def test_a_rollout_comes_to_its_end_where_more_is_wanted_than_there_are_gpus() -> None:
    cluster = Cluster(service(L4, **external(4)), {"l4": 2})
    cluster.settle()
    first = {pod.template_hash for pod in cluster.pods}
    cluster.least_ready = 2

    cluster.change(engine={"maxNumSeqs": 8})
    for _ in range(6):
        cluster.settle(60)
        cluster.wait(31)

    assert not first & {pod.template_hash for pod in cluster.pods}
    assert cluster.num_ready() == 2
    assert cluster.least_ready >= 1


MISMATCH = (
    "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. preemption: 0/3"
    " nodes are available: 3 Preemption is not helpful for scheduling."
)
TAKEN = (
    "0/3 nodes are available: 1 Insufficient nvidia.com/gpu, 2 node(s) didn't match Pod's node"
    " affinity/selector. preemption: 0/3 nodes are available: 1 No preemption victims found for"
    " incoming pod, 2 Preemption is not helpful for scheduling."
)


@pytest.mark.parametrize(
    ("words", "product", "num_staying"),
    [
        (MISMATCH, "NVIDIA-L40S", 2),  # no node has it: whoever goes makes no room
        (MISMATCH, "NVIDIA-L4", 2),  # of another label or taint
        (TAKEN, "NVIDIA-L40S", 2),  # others have all of them
        (TAKEN, "NVIDIA-L4", 0),  # those that go have them
    ],
)
def test_old_pods_make_room_only_for_what_they_hold(
    words: str, product: str, num_staying: int
) -> None:
    cluster = Cluster(service(L4, **external(2)), {"l4": 2}, scheduler_words=words)
    names = {"a": "NVIDIA-L4", "b": "NVIDIA-L40S"}
    cluster.nodes = [
        Node(name=name, product=product, num_gpus=2, is_ready=True, created_at=cluster.now)
        for name, product in names.items()
    ]
    cluster.settle()
    cluster.pods = [replace(pod, node="a") for pod in cluster.pods]
    first = {pod.template_hash for pod in cluster.pods}

    cluster.change(accelerators=[L4 | {"products": [product]}], engine={"maxNumSeqs": 8})
    for _ in range(6):
        cluster.settle(60)
        cluster.wait(31)

    assert sum(pod.template_hash in first for pod in cluster.pods) == num_staying
    assert cluster.num_ready() == 2


def test_a_bad_revision_stops_and_the_old_one_serves_on() -> None:
    cluster = Cluster(service(H100, **external(2)), {"h100": 3})
    cluster.settle()
    good = cluster.deployments["h100"].inputs_hash
    cluster.change(engine={"maxNumSeqs": 8})
    cluster.apply()
    cluster.bad_revisions.add(cluster.deployments["h100"].inputs_hash)
    cluster.settle()

    assert sum(one.is_ready for one in cluster.pods if one.template_hash == good) == 2
    ready = next(one for one in cluster.service.status.conditions if one.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "RollingOut")


def test_what_is_known_not_to_fit_is_not_rolled_out() -> None:
    cluster = Cluster(service(SIMULATED, **external(1)), {"l4": 2})
    cluster.settle()
    made = cluster.num_made

    big = SIMULATED | {"simulate": {"gpu": "l4", "modelShape": "llama3-70b"}}
    cluster.change(accelerators=[big])
    cluster.settle()

    assert cluster.num_made == made
    assert cluster.num_ready() == 1
    degraded = next(one for one in cluster.service.status.conditions if one.type == "Degraded")
    assert degraded.reason == "ModelDoesNotFit"
    assert "llama3-70b does not fit l4: weights take 131.4 GiB" in degraded.message


def test_a_request_that_does_not_fit_is_said_with_the_numbers() -> None:
    source = {"source": "hf://meta-llama/Llama-3.1-8B-Instruct@main"}
    l4 = {"name": "l4", "products": ["NVIDIA-L4"]}
    (misfit,) = find_misfits(service(l4, model=source | {"maxModelLen": 131072}))

    assert (
        "a request of maxModelLen 131072 tokens does not fit l4 beside llama3.1-8b: it takes 16.0"
        " GiB, weights 15.0 GiB and working memory"
    ) in misfit.message
    most = int(misfit.message.split("at most ")[1].split()[0])
    assert find_misfits(service(l4, model=source | {"maxModelLen": most})) == []
    assert find_misfits(service(l4, model=source | {"maxModelLen": most + 16})) != []
    more = {"extraArgs": ["--gpu-memory-utilization=0.95"]}
    assert find_misfits(service(l4, model=source | {"maxModelLen": most + 16}, engine=more)) == []
    assert CacheConfig().gpu_memory_utilization == UTILIZATION


def _object(cluster: Cluster, kind: str, name: str) -> dict[str, Any]:
    return next(
        one
        for one in cluster.plan().objects
        if one["kind"] == kind and one["metadata"]["name"] == name
    )
