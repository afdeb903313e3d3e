"""What conditions say of replicas that scaling decides."""

from dataclasses import replace

import pytest

from quire_operator.scaling.outcome import Outcome
from tests.unit.control.builders import H100, L4, NOW, service
from tests.unit.control.plans import failing, planned, said


@pytest.mark.parametrize(
    ("replicas", "ready"),
    [
        (0, ("True", "ScaledToZero")),
        (3, ("False", "NoReplicaReady")),
    ],
)
def test_what_scaling_decided_is_what_is_wanted(replicas: int, ready: tuple[str, str]) -> None:
    auto = {"mode": "Auto", "minReplicas": 0, "scaleToZeroAfter": "1m"}
    made = planned(
        service=service(L4, replicas=1, scaling=auto),
        is_scaling=True,
        scaled=Outcome(replicas={"l4": replicas}),
    )

    assert said(made, "Ready")[:2] == ready
    assert made.status.desired_replicas == replicas
    assert f"of {replicas}" in said(made, "Ready")[2] or replicas == 0


@pytest.mark.parametrize(
    ("least", "words"), [(0, "no replica is wanted"), (1, "the bounds of the spec allow none")]
)
def test_where_no_replica_is_asked_for_none_has_a_node(least: int, words: str) -> None:
    auto = {"mode": "Auto", "minReplicas": least, "maxCostPerHour": "0"}
    made = planned(
        service=service(L4, replicas=1, scaling=auto),
        is_scaling=True,
        scaled=Outcome(replicas={"l4": 0}),
    )

    status, reason, message = said(made, "GPUsAvailable")
    assert (status, reason) == ("Unknown", "NoReplicasWanted")
    assert words in message


def test_a_replica_without_a_node_that_has_a_stand_in_is_not_missing() -> None:
    scaled = Outcome(replicas={"l4": 1, "h100": 1}, short_since={"l4": NOW.timestamp()})
    pod = replace(failing(), name="chat-h100-1", accelerator="h100", is_ready=True)
    made = planned(
        pod,
        service=service(L4, H100, scaling={"mode": "Auto"}),
        is_scaling=True,
        scaled=scaled,
    )

    assert said(made, "Available")[0] == "True"
    assert made.status.desired_replicas == 2
    assert "of 2" not in said(made, "Progressing")[2]
    assert said(made, "Ready")[2] == "the only replica is ready; for 1 more there is no node"


@pytest.mark.parametrize("least", [0, 1])
def test_the_only_accelerator_has_no_node(least: int) -> None:
    auto = {"mode": "Auto", "minReplicas": least, "scaleToZeroAfter": "1m"}
    pod = replace(failing(), is_scheduled=False, is_ready=False, unschedulable_since=NOW)
    made = planned(
        pod,
        service=service(L4, scaling=auto),
        is_scaling=True,
        scaled=Outcome(replicas={"l4": 1}, short_since={"l4": NOW.timestamp()}),
    )

    assert said(made, "Ready")[:2] == ("False", "NoGPUNode")
    assert said(made, "Available")[0] == "False"


def test_an_accelerators_own_minimum_has_no_stand_in() -> None:
    scaled = Outcome(replicas={"l4": 1, "h100": 1}, short_since={"l4": NOW.timestamp()})
    pod = replace(failing(), name="chat-h100-1", accelerator="h100", is_ready=True)
    made = planned(
        pod,
        service=service(L4 | {"minReplicas": 1}, H100, scaling={"mode": "Auto"}),
        is_scaling=True,
        scaled=scaled,
    )

    assert said(made, "Ready")[0] == "False"
    assert said(made, "Progressing")[2] == "1 of 2 replicas are ready"


def test_none_at_all_is_not_ready_where_there_have_to_be_some() -> None:
    made = planned(
        service=service(L4, scaling={"mode": "Auto", "minReplicas": 1}),
        is_scaling=True,
        scaled=Outcome(replicas={"l4": 0}, short_since={"l4": NOW.timestamp()}),
    )

    assert said(made, "Ready")[0] == "False"
    assert said(made, "Progressing")[2] == "0 of 1 replica is ready"
