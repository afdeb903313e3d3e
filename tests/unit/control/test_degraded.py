"""What stands in the way of a service, said in words."""

import json
from dataclasses import replace
from typing import Any

import pytest

from quire_operator.planner.api_keys import ApiKeys
from quire_operator.planner.claims import Standing
from quire_operator.planner.observed import Refusal, SecretsSeen, deployment_from
from quire_operator.planner.plan import plan
from tests.unit.control.builders import L4, NOW, SETTINGS, Cluster, external, service
from tests.unit.control.plans import failing, planned, said


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


def test_a_simulation_of_an_unknown_gpu_is_said_with_those_that_there_are() -> None:
    simulate = {"gpu": "l5", "modelShape": "llama3-8b"}
    made = planned(service=service({"name": "simulated", "simulate": simulate}, **external(1)))

    assert said(made, "Degraded")[:2] == ("True", "UnknownSimulation")
    assert "unknown GPU 'l5': choose one of t4, l4" in said(made, "Degraded")[2]


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


def test_one_restart_is_one() -> None:
    pod = failing({"reason": "CrashLoopBackOff"}, {"reason": "Error", "exitCode": 1})
    once = said(planned(replace(pod, num_restarts=1)), "Degraded")[2]
    assert "chat-l4-1 ended with status 1, 1 restart: " in once


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


@pytest.mark.parametrize(
    ("replicas", "words"),
    [
        (1, "not found; 1 replica of the old revision serves on"),
        (2, "not found; 2 replicas of the old revision serve on"),
    ],
)
def test_a_bad_revision_is_said_with_what_serves_on(replicas: int, words: str) -> None:
    cluster = Cluster(service(L4, **external(replicas)), {"l4": 9})
    cluster.settle()
    cluster.change(engine={"maxNumSeqs": 8})
    cluster.bad_revisions.add(deployment_from(deployment_of(cluster)).inputs_hash)
    cluster.settle()
    bad: dict[str, Any] = {"waiting_reason": "ErrImagePull", "waiting_message": "not found"}
    pods = tuple(pod if pod.is_ready else replace(pod, **bad) for pod in cluster.pods)
    made = plan(replace(cluster.observe(), pods=pods), SETTINGS, NOW)

    assert cluster.num_ready() == replicas
    assert said(made, "Ready")[:2] == ("False", "ImagePullFailed")
    assert said(made, "Degraded")[2].endswith(words)
    assert said(made, "Available")[0] == "True"


def deployment_of(cluster: Cluster) -> dict[str, Any]:
    """What is planned for its one accelerator."""
    return next(one for one in cluster.plan().objects if one["kind"] == "Deployment")
