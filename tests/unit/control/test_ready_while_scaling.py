"""Ready stays while replicas come to those that serve."""

from dataclasses import replace

import pytest

from quire_operator.planner.plan import plan
from quire_operator.scaling.outcome import Outcome
from tests.unit.control.builders import H100, L4, Cluster, external, service
from tests.unit.control.plans import said


def grown(**spec: object) -> Cluster:
    """A service of two replicas, all ready, that is to have four."""
    cluster = Cluster(service(L4, **(external(2) | spec)), {"l4": 2})
    cluster.settle()
    cluster.settle()
    cluster.change(replicas=4)
    return cluster


def test_it_stays_ready_until_all_are_and_says_what_comes() -> None:
    cluster = grown()
    cluster.free_gpus["l4"] = 4
    ready, reasons = [], []
    for _ in range(9):
        made = cluster.apply()
        ready.append(said(made, "Ready")[:2])
        reasons += [one.reason for one in made.events]
        cluster.step()

    assert ready[0] == ("True", "ScalingUp")
    assert ready[-1] == ("True", "AllReady")
    assert reasons == ["ScalingUp", "AllReady"]


def test_what_waits_for_a_node_is_told_and_takes_nothing_away() -> None:
    cluster = grown()
    cluster.settle()
    made = cluster.plan()

    assert said(made, "Ready")[:2] == ("True", "ScalingUp")
    assert "2 of 4 replicas are ready" in said(made, "Ready")[2]
    assert "NoGPUNode" in said(made, "Ready")[2]
    assert said(made, "GPUsAvailable")[0] == "False"
    assert said(made, "Progressing")[:2] == ("True", "WaitingForReplicas")


def test_one_of_those_that_served_is_missed() -> None:
    cluster = grown()
    cluster.settle()
    cluster.pods = [replace(cluster.pods[0], is_ready=False), *cluster.pods[1:]]

    assert said(cluster.plan(), "Ready")[0] == "False"


def test_as_many_as_before_are_no_scaling_up() -> None:
    cluster = grown()
    cluster.free_gpus["l4"] = 4
    cluster.settle()
    cluster.apply()
    cluster.pods = [replace(cluster.pods[0], is_ready=False), *cluster.pods[1:]]

    assert said(cluster.plan(), "Ready")[:2] == ("False", "WaitingForReplicas")


def test_a_new_one_that_fails_is_said() -> None:
    cluster = grown()
    cluster.settle()
    cluster.pods[-1] = replace(cluster.pods[-1], last_exit_code=1, is_scheduled=True)

    assert said(cluster.plan(), "Ready")[:2] == ("False", "EngineFailed")


def test_a_new_revision_is_a_rollout_all_the_same() -> None:
    cluster = grown()
    cluster.change(engine={"maxNumSeqs": 8})

    assert said(cluster.plan(), "Ready")[:2] == ("False", "RollingOut")


def test_a_new_service_is_ready_with_all_of_its_replicas() -> None:
    cluster = Cluster(service(L4, **external(2)), {"l4": 1})
    cluster.settle()

    assert cluster.num_ready() == 1
    assert said(cluster.plan(), "Ready")[0] == "False"


def test_fewer_than_a_minimum_that_was_raised_are_not_ready() -> None:
    cluster = Cluster(service(L4, scaling={"minReplicas": 2}), {"l4": 2})
    cluster.settle()
    cluster.apply()
    cluster.change(scaling={"minReplicas": 3})
    cluster.settle()

    assert said(cluster.plan(), "Ready")[0] == "False"


@pytest.mark.parametrize(("free", "ready"), [(1, "True"), (0, "False")])
def test_from_none_it_stays_ready_as_long_as_there_is_a_node(free: int, ready: str) -> None:
    cluster = Cluster(service(H100, **external(0)), {"h100": free})
    cluster.settle()
    assert said(cluster.apply(), "Ready")[:2] == ("True", "ScaledToZero")
    cluster.change(replicas=1)
    cluster.apply()
    cluster.step()
    cluster.pods = [replace(pod, is_ready=False) for pod in cluster.pods]

    assert said(cluster.plan(), "Ready")[0] == ready
    assert said(cluster.plan(), "Available")[0] == "False"


@pytest.mark.parametrize(("most", "words"), [(0, "scaling.maxReplicas is 0"), (1, "first request")])
def test_what_would_bring_a_first_replica_is_said(most: int, words: str) -> None:
    auto = service(H100, replicas=0, scaling={"minReplicas": 0, "maxReplicas": most})
    cluster = Cluster(auto, {"h100": 1})
    observed = replace(cluster.observe(), is_scaling=True, scaled=Outcome(replicas={"h100": 0}))
    _, reason, message = said(plan(observed, cluster.settings, cluster.now), "Ready")
    assert reason == "ScaledToZero"
    assert words in message
