"""What is said of a service: the truth, in words, once."""

import json
from dataclasses import replace
from typing import Any

import pytest
from msgspec import convert, structs

from quire_engine.protocol.state import EngineState
from quire_operator.planner.api_keys import ApiKeys
from quire_operator.planner.claims import Standing
from quire_operator.planner.observed import (
    Engine,
    LoadingEngine,
    Observed,
    Pod,
    Refusal,
    SecretsSeen,
    deployment_from,
    engine_from,
    pod_from,
)
from quire_operator.planner.plan import Plan, plan
from quire_operator.reconciling.status_writer import without_figures
from quire_operator.resource.status import CONDITION_TYPES
from tests.unit.control.builders import (
    CPU,
    H100,
    L4,
    NOW,
    SETTINGS,
    Cluster,
    external,
    service,
    with_status,
)

BODY: dict[str, Any] = {
    "metadata": {
        "name": "chat-l4-1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"serving.quire.dev/accelerator": "l4", "pod-template-hash": "a"},
    },
    "spec": {"nodeName": "n1"},
    "status": {"conditions": [{"type": "PodScheduled", "status": "True"}]},
}


def said(made: Plan, kind: str) -> tuple[str, str, str]:
    found = next(one for one in made.status.conditions if one.type == kind)
    return found.status, found.reason, found.message


def planned(*pods: Pod, **observed: Any) -> Plan:
    seen = Observed(
        service=service(L4, **external(1)),
        pods=pods,
        root_secret=b"s" * 32,
        gateway_addresses=("10.0.0.1",),
    )
    return plan(replace(seen, **observed), SETTINGS, NOW)


def failing(waiting: dict[str, str] | None = None, ended: dict[str, Any] | None = None) -> Pod:
    container: dict[str, Any] = {"image": "engine:1", "restartCount": 4, "state": {}}
    if waiting:
        container["state"] = {"waiting": waiting}
    if ended:
        container["lastState"] = {"terminated": ended}
    status = BODY["status"] | {"containerStatuses": [container]}
    return pod_from(BODY | {"status": status})


def test_all_conditions_are_there_from_the_first_visit_on() -> None:
    made = planned()

    assert tuple(one.type for one in made.status.conditions) == CONDITION_TYPES
    assert said(made, "Ready")[:2] == ("False", "NoReplicaReady")


def test_a_settled_service_is_ready() -> None:
    cluster = Cluster(service(L4, **external(2)), {"l4": 2})
    cluster.settle()
    made = cluster.plan()

    assert said(made, "Ready") == ("True", "AllReady", "all 2 replicas are ready")
    assert said(made, "Progressing")[0] == "False"
    assert said(made, "Degraded")[0] == "False"
    assert made.status.admission_state == "Open"
    assert made.status.hourly_cost == "1.60"


def test_no_node_is_said_with_the_schedulers_words_and_the_products() -> None:
    cluster = Cluster(service(L4, **external(2)), {"l4": 1})
    cluster.settle()
    status, reason, message = said(cluster.plan(), "GPUsAvailable")

    assert (status, reason) == ("False", "NoGPUNode")
    assert "0/3 nodes are available: 3 Insufficient nvidia.com/gpu." in message
    assert "NVIDIA-L4" in message


def test_an_operator_of_single_namespaces_says_that_it_sees_no_nodes() -> None:
    cluster = Cluster(service(L4, **external(2)), {"l4": 1})
    cluster.settle()
    made = plan(replace(cluster.observe(), nodes=None), SETTINGS, cluster.now)

    assert "sees no nodes" not in said(cluster.plan(), "GPUsAvailable")[2]
    assert "sees no nodes" in said(made, "GPUsAvailable")[2]


def test_a_pod_that_needs_no_gpu_waits_for_a_node_and_not_for_a_gpu() -> None:
    cluster = Cluster(service(CPU, **external(1)), {})
    cluster.settle()

    assert said(cluster.plan(), "GPUsAvailable")[:2] == ("False", "NoNode")


def test_minimums_of_accelerators_are_wanted_too() -> None:
    cluster = Cluster(service(L4 | {"minReplicas": 3}), {"l4": 1})
    cluster.settle()
    made = cluster.plan()

    assert said(made, "Ready")[:2] == ("False", "NoGPUNode")
    assert said(made, "Progressing")[2] == "1 of 3 replicas are ready"
    cluster.free_gpus["l4"] = 3
    cluster.settle()
    assert said(cluster.plan(), "Ready")[2] == "all 3 replicas are ready"


def test_a_service_whose_stand_ins_are_ready_is_ready_and_says_what_is_short() -> None:
    cluster = Cluster(service(L4, H100, **external(2)), {"l4": 1, "h100": 1})
    cluster.settle()
    assert said(cluster.plan(), "Ready")[0] == "False"
    cluster.wait(181)
    cluster.settle()
    made = cluster.plan()

    assert said(made, "Ready")[:2] == ("True", "AllReady")
    assert said(made, "GPUsAvailable")[:2] == ("False", "NoGPUNode")


def test_a_changed_spec_is_not_ready_before_anybody_has_begun_it() -> None:
    cluster = Cluster(service(L4, **external(1)), {"l4": 2})
    cluster.settle()
    cluster.change(engine={"maxNumSeqs": 8})
    made = cluster.plan()  # the Deployment is still as it was

    assert made.status.observed_generation == 2
    assert said(made, "Ready")[:2] == ("False", "RollingOut")
    cluster.settle()
    assert said(cluster.plan(), "Ready")[0] == "True"


def test_more_replicas_are_no_rollout_while_their_deployment_is_not_counted_yet() -> None:
    cluster = Cluster(service(L4, **external(1)), {"l4": 2})
    cluster.settle()
    before = cluster.deployments["l4"]
    cluster.change(replicas=2)
    cluster.apply()
    uncounted = replace(before, replicas=2, is_observed=False)
    made = plan(replace(cluster.observe(), deployments={"l4": uncounted}), SETTINGS, NOW)

    assert said(made, "Progressing")[:2] == ("True", "WaitingForReplicas")


def test_a_service_that_wants_nothing_says_what_starts_it_and_rolls_nothing_out() -> None:
    cluster = Cluster(service(L4, replicas=0, scaling={"minReplicas": 0}), {"l4": 2})
    for _ in range(3):
        events = cluster.apply().events
        assert "RollingOut" not in {one.reason for one in events}
    made = cluster.plan()

    assert said(made, "Ready")[:2] == ("True", "ScaledToZero")
    assert "set scaling.minReplicas to 1" in said(made, "Ready")[2]
    outside = Cluster(service(L4, **external(0)), {}).plan()
    assert "kubectl scale" in said(outside, "Ready")[2]


def test_without_a_gateway_nobody_is_answered_and_it_is_said() -> None:
    cluster = Cluster(service(L4, **external(1)), {"l4": 1})
    cluster.settle()
    none = plan(cluster.observe(), replace(SETTINGS, gateway=None), NOW)
    away = plan(replace(cluster.observe(), gateway_addresses=()), SETTINGS, NOW)
    blind = plan(replace(cluster.observe(), gateway_addresses=(), nodes=None), SETTINGS, NOW)

    assert said(none, "Ready")[:2] == ("False", "NoGateway")
    assert "--gateway-namespace" in said(none, "Degraded")[2]
    assert "no pod of the gateway is ready in the namespace quire-system" in said(away, "Ready")[2]
    assert "--namespaces" in said(blind, "Ready")[2]
    assert "--namespaces" not in said(away, "Ready")[2]
    local = plan(cluster.observe(), replace(SETTINGS, gateway=None, is_local=True), NOW)
    assert said(local, "Ready")[0] == "True"


def test_a_trouble_hides_no_other() -> None:
    refusal = Refusal(what="ConfigMap chat-routing", words="too long")
    bad = ApiKeys(problems=("a has a key that is too short",))
    made = planned(
        failing({"reason": "ErrImagePull", "message": "not found"}),
        refusals=(refusal,),
        secrets=SecretsSeen(keys=bad),
    )
    status, reason, message = said(made, "Degraded")

    assert (status, reason) == ("True", "ApplyRefused")
    assert "gateways keep the keys and names that they were told of before" in message
    assert "ApiKeysInvalid: " in message
    assert "ImagePullFailed: " in message


def test_no_host_passes_for_a_service_of_the_gateways_namespace() -> None:
    host = "quire-gateway.quire-system"
    wanted = service(L4, ingress={"host": host}, access={"public": True})
    made = planned(service=wanted)

    assert said(made, "Degraded")[:2] == ("True", "HostReserved")
    assert f"{host} is the address of a Service" in said(made, "Degraded")[2]
    document = next(one for one in made.objects if one["metadata"]["name"] == "chat-routing")
    assert json.loads(document["data"]["routing.json"])["host"] is None
    assert not any(one["kind"] == "Ingress" for one in made.objects)
    assert made.status.url == "http://chat.models.svc.cluster.local/v1"


def test_an_alias_of_another_service_is_left_to_it() -> None:
    wanted = service(
        L4,
        model={"source": "hf://a/b", "name": "m", "aliases": ["n", "o"]},
        ingress={"host": "m.example.com"},
        access={"public": True},
    )
    made = planned(service=wanted, standing=Standing(alias_owners={"n": "models/older"}))

    assert said(made, "Degraded")[:2] == ("True", "NameTaken")
    assert "models/older" in said(made, "Degraded")[2]
    document = next(one for one in made.objects if one["metadata"]["name"] == "chat-routing")
    assert json.loads(document["data"]["routing.json"])["model_names"] == ["m", "o"]
    assert any(one["kind"] == "Ingress" for one in made.objects)


def test_engines_that_do_not_answer_are_named_with_their_address() -> None:
    cluster = Cluster(service(L4, **external(1)), {"l4": 1})
    cluster.settle()
    (pod,) = cluster.pods
    cluster.pods = [replace(pod, address="10.0.0.9")]
    unheard = {pod.name: "no answer in time"}
    made = plan(replace(cluster.observe(), unheard=unheard), SETTINGS, NOW)

    assert said(made, "MetricsFresh")[:2] == ("False", "NotAnswering")
    assert f"{pod.name} at 10.0.0.9:8000: no answer in time" in said(made, "MetricsFresh")[2]


def test_a_simulation_of_an_unknown_gpu_is_said_with_those_that_there_are() -> None:
    simulate = {"gpu": "l5", "modelShape": "llama3-8b"}
    made = planned(service=service({"name": "simulated", "simulate": simulate}, **external(1)))

    assert said(made, "Degraded")[:2] == ("True", "UnknownSimulation")
    assert "unknown GPU 'l5': choose one of t4, l4" in said(made, "Degraded")[2]


def test_nobody_is_told_that_a_service_scales_while_nothing_scales_it() -> None:
    made = Cluster(service(L4), {}).plan()
    assert said(made, "ScalingActive")[:2] == ("False", "FixedReplicas")


def test_background_is_refused_once_all_engines_have_promised_so_much() -> None:
    cluster = Cluster(service(L4, **external(1), memoryPressure={"background": 30}), {"l4": 1})
    cluster.settle()
    pod = cluster.pods[0].name
    full = plan(replace(cluster.observe(), engines={pod: engine(100)}), SETTINGS, NOW)

    assert full.status.admission_state == "BackgroundRefused"  # 300 of 1000 are reserved
    assert cluster.plan().status.admission_state == "Open"


@pytest.mark.parametrize(
    ("waiting", "ended", "reason", "words"),
    [
        (
            {"reason": "ImagePullBackOff", "message": "not found"},
            None,
            "ImagePullFailed",
            "chat-l4-1 cannot pull engine:1: not found",
        ),
        (
            {"reason": "CreateContainerConfigError", "message": 'secret "hf" not found'},
            None,
            "ContainerConfigInvalid",
            'secret "hf" not found',
        ),
        (
            {"reason": "CrashLoopBackOff", "message": "back-off"},
            {"reason": "Error", "exitCode": 2, "message": "x\nquire: error: no such model\n"},
            "EngineFailed",
            "chat-l4-1 ended with status 2, 4 restarts: no such model",
        ),
        (
            None,
            {"reason": "OOMKilled", "exitCode": 137},
            "OutOfMemory",
            "was killed for memory",
        ),
    ],
)
def test_why_a_pod_does_not_run(
    waiting: dict[str, str] | None, ended: dict[str, Any] | None, reason: str, words: str
) -> None:
    made = planned(failing(waiting, ended))

    assert said(made, "Degraded")[:2] == ("True", reason)
    assert words in said(made, "Degraded")[2]
    assert said(made, "Ready")[:2] == ("False", reason)


def test_a_pod_that_crashed_once_and_is_ready_again_is_no_trouble() -> None:
    pod = replace(failing(None, {"reason": "Error", "exitCode": 1}), is_ready=True)
    assert said(planned(pod), "Degraded")[0] == "False"


def test_what_needs_other_objects_is_a_condition() -> None:
    assert said(planned(secrets=SecretsSeen(missing=("hf",))), "Degraded") == (
        "True",
        "SecretMissing",
        "there is no Secret hf in this namespace: create it",
    )
    denied = planned(secrets=SecretsSeen(unreadable=("keys: no right to",)))
    assert said(denied, "Degraded")[1:] == (
        "SecretUnreadable",
        "keys: no right to; what was read before stays in force",
    )
    taken = planned(standing=Standing(name_owner="models/older"))
    assert said(taken, "Degraded")[1] == "NameTaken"
    assert not any(one["metadata"]["name"] == "chat-routing" for one in taken.objects)


def test_what_the_api_server_does_not_take_is_said_in_its_words() -> None:
    made = planned(refusals=(Refusal(what="Deployment chat-l4", words="exceeded quota: small"),))

    assert said(made, "Degraded")[1:] == (
        "ApplyRefused",
        "the API server did not take Deployment chat-l4: exceeded quota: small",
    )
    assert said(made, "Ready")[:2] == ("False", "ApplyRefused")
    assert ("Warning", "ApplyRefused") in [(one.kind, one.reason) for one in made.events]


def test_pods_that_a_quota_forbids_are_said_with_its_words() -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: pods"}
    body = {
        "metadata": {"labels": {"serving.quire.dev/accelerator": "l4"}},
        "status": {"conditions": [failure]},
    }
    made = planned(deployments={"l4": deployment_from(body)})

    assert said(made, "Degraded")[1:] == (
        "PodsRefused",
        "no pod could be made for l4: exceeded quota: pods",
    )


def test_a_bad_revision_is_said_with_what_serves_on() -> None:
    cluster = Cluster(service(L4, **external(2)), {"l4": 9})
    cluster.settle()
    cluster.change(engine={"maxNumSeqs": 8})
    cluster.bad_revisions.add(deployment_from(deployment_of(cluster)).inputs_hash)
    cluster.settle()
    bad: dict[str, Any] = {"waiting_reason": "ErrImagePull", "waiting_message": "not found"}
    pods = tuple(pod if pod.is_ready else replace(pod, **bad) for pod in cluster.pods)
    made = plan(replace(cluster.observe(), pods=pods), SETTINGS, NOW)

    assert cluster.num_ready() == 2
    assert said(made, "Ready")[:2] == ("False", "ImagePullFailed")
    assert said(made, "Degraded")[2].endswith("not found; 2 replicas of the old revision serve on")
    assert said(made, "Available")[0] == "True"


def deployment_of(cluster: Cluster) -> dict[str, Any]:
    """What is planned for its one accelerator."""
    return next(one for one in cluster.plan().objects if one["kind"] == "Deployment")


def test_times_of_transition_are_kept_and_nothing_is_said_twice() -> None:
    cluster = Cluster(service(L4, **external(1)), {"l4": 1})
    first = cluster.apply()
    assert [(event.kind, event.reason) for event in first.events] == [
        ("Normal", "WaitingForReplicas"),
    ]
    reasons = []
    for _ in range(6):
        cluster.step()
        reasons += [event.reason for event in cluster.apply().events]
    assert reasons[-1] == "AllReady"
    assert len(reasons) == len(set(reasons)) <= 3
    cluster.settle()
    cluster.wait(60)

    again = cluster.plan()
    assert again.events == ()
    assert again.status == cluster.service.status


def test_figures_are_rounded_so_that_they_are_rarely_written() -> None:
    cluster = Cluster(service(L4, H100, **external(1)), {"l4": 1})
    cluster.settle()
    pod = cluster.pods[0].name
    made = [
        plan(replace(cluster.observe(), engines={pod: engine(held)}), SETTINGS, NOW)
        for held in (98, 101)
    ]

    assert made[0].status == made[1].status
    assert made[0].status.accelerators[0].blocks_held_percent == 10
    assert made[0].status.resolved_revision == "abc"
    assert said(made[0], "MetricsFresh")[0] == "True"
    assert said(cluster.plan(), "MetricsFresh")[:2] == ("Unknown", "NotAskedYet")


def test_how_far_a_model_has_come_is_a_figure_and_what_it_is_at_a_transition() -> None:
    pods = [replace(failing(), name=name) for name in ("p1", "p2")]

    def at(*several: LoadingEngine) -> Plan:
        names = [pod.name for pod in pods]
        return planned(*pods, loading=dict(zip(names, several, strict=False)))

    nothing, half = at(), at(LoadingEngine("Fetching", 50), LoadingEngine("Loading", 5))
    (accelerator,) = half.status.accelerators
    assert (accelerator.loading_phase, accelerator.loading_percent) == ("Fetching", 50)
    assert said(nothing, "ModelLoaded")[1] == "Loading"
    assert said(half, "ModelLoaded") == (
        "False",
        "Fetching",
        "2 engines fetch the model; accelerators[].loadingPercent says how far",
    )
    further = at(LoadingEngine("Fetching", 95), LoadingEngine("Loading", 5))
    assert without_figures(further.status) == without_figures(half.status)
    assert further.status != half.status
    loading = at(LoadingEngine("Loading", 0), LoadingEngine("Loading", 5))
    assert without_figures(loading.status) != without_figures(half.status)
    assert said(loading, "ModelLoaded")[1] == "Loading"


def test_a_revision_is_pinned_until_another_or_a_restart_is_asked_for() -> None:
    cluster = Cluster(service(L4, **external(1)), {"l4": 2})
    cluster.settle()

    def tell(commit: str) -> None:
        heard = {cluster.pods[0].name: replace(engine(0), revision=commit)}
        made = plan(replace(cluster.observe(), engines=heard), SETTINGS, NOW)
        cluster.service = with_status(cluster.service, made)

    def pin() -> str | None:
        objects = cluster.plan().objects
        live = next(one for one in objects if one["metadata"]["name"] == "chat-live")
        pinned: str | None = live["data"].get("pin")
        return pinned

    assert pin() is None
    tell("aaa")
    assert pin() == "hf://acme/thing@main=aaa"
    pods = cluster.num_made
    tell("bbb")  # one that began with another: what is pinned stays
    cluster.settle()
    assert (pin(), cluster.num_made) == ("hf://acme/thing@main=aaa", pods)

    cluster.change(model={"source": "hf://acme/thing@next"})
    assert pin() is None
    cluster.settle()
    tell("bbb")
    assert pin() == "hf://acme/thing@next=bbb"
    restarted = {"serving.quire.dev/restarted-at": "now"}
    cluster.service = structs.replace(cluster.service, annotations=restarted)
    assert pin() is None


def test_progress_is_rounded_down_so_that_the_end_is_the_end() -> None:
    fractions = {0.0: 0, 0.049: 0, 0.05: 5, 0.999: 95, 1.0: 100}
    for fraction, percent in fractions.items():
        found = engine(0, loading={"phase": "fetching", "stage": "x", "fraction": fraction})
        assert found.loading == LoadingEngine("Fetching", percent)


def engine(held: int, **more: Any) -> Engine:
    """What plans know of an engine that says such a state."""
    return engine_from(state_of(held, **more))


def state_of(held: int, **more: Any) -> EngineState:
    """An engine's state."""
    blocks = {"total": 1000, "held": held, "free": 0, "cached": 0, "reserved": 300, "queued": 0}
    log = {"first_number": 0, "next_number": 0}
    return convert(
        {
            "schema_version": 1,
            "sequence": 1,
            "age_seconds": 0.0,
            "model_id": "m",
            "config_hash": "h",
            "is_ready": True,
            "is_draining": False,
            "tokens_per_block": 16,
            "max_model_len": 4096,
            "blocks": blocks,
            "num_overshoot_blocks": 0,
            "sequences": {"running": 0, "waiting": 0, "slots": 8},
            "pressure": None,
            "thresholds": None,
            "output_lengths": None,
            "step_time": None,
            "z": None,
            "gateways": {},
            "prefix_chunks": log,
            "num_filled_tokens": 0,
            "num_preemptions": 0,
            "num_recomputed_tokens": 0,
            "num_core_restarts": 0,
            "model_revision": "abc",
            **more,
        },
        EngineState,
    )
