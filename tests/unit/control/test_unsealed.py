"""Templates without a seal: believed where the pods are so already, and nowhere else."""

import json
from typing import Any

import pytest

from quire_operator.planner.unsealed import is_as_annotated

LABELS = {"serving.quire.dev/service": "chat"}
MADE: dict[str, Any] = {
    "metadata": {"labels": LABELS},
    "spec": {
        "containers": [
            {"name": "engine", "image": "a", "securityContext": {"privileged": False}, "args": []}
        ]
    },
}
LIVE: dict[str, Any] = {
    "metadata": {"creationTimestamp": None, "labels": LABELS},
    "spec": {
        "containers": [MADE["spec"]["containers"][0] | {"imagePullPolicy": "Always"}],
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
    },
}


def with_container(**changes: Any) -> str:
    container = MADE["spec"]["containers"][0] | changes
    return json.dumps(MADE | {"spec": {"containers": [container]}})


def test_what_the_api_server_fills_in_is_no_difference() -> None:
    assert is_as_annotated(json.dumps(MADE), LIVE)


@pytest.mark.parametrize(
    "annotated",
    [
        "",
        "{",
        "[" * 10_000,
        "{}",
        '{"spec": {}}',
        '{"spec": {"containers": []}}',
        with_container(image="evil/miner:1"),
        with_container(securityContext={}),
        with_container(command=["sh"]),
        json.dumps({"spec": MADE["spec"]}),
    ],
)
def test_anything_else_is_not_believed(annotated: str) -> None:
    assert not is_as_annotated(annotated, LIVE)


def test_a_container_that_somebody_added_is_a_difference() -> None:
    spec = LIVE["spec"]
    live = LIVE | {"spec": spec | {"containers": [*spec["containers"], {"name": "miner"}]}}
    assert not is_as_annotated(json.dumps(MADE), live)
