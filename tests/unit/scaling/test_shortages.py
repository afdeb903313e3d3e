"""When a replica that waits means that there are no GPUs, and when that is forgotten."""

from dataclasses import replace

import pytest

from quire_operator.scaling.decision import ServiceMemory
from quire_operator.scaling.inputs import Replica, ScalingInputs, ServiceInputs
from quire_operator.scaling.rooms import find_short
from tests.unit.scaling.worlds import service

NOW = 10_000.0
THERE = Replica(name="a", accelerator="l4")
WAITS = Replica(
    name="b", accelerator="l4", is_scheduled=False, is_ready=False, waiting_since=NOW - 200.0
)


def short(one: ServiceInputs, **known: float) -> set[str]:
    memory = ServiceMemory(since=0.0, last_request_at=0.0, short_since=known)
    return set(find_short(one, memory, ScalingInputs(now=NOW, services=(one,))))


@pytest.mark.parametrize(("ordered", "found"), [(1, set()), (2, {"l4"})])
def test_a_replica_of_a_rollout_beside_those_ordered_is_no_sign(
    ordered: int, found: set[str]
) -> None:
    rolling = replace(service("l4"), replicas=(THERE, WAITS), ordered={"l4": ordered})
    assert short(rolling) == found


def test_a_suspended_service_remembers_no_shortage() -> None:
    suspended = replace(service("l4"), is_suspended=True, ordered={"l4": 0})
    assert short(suspended, l4=NOW - 5.0) == set()


def test_where_nothing_runs_something_may_be_tried() -> None:
    stopped = replace(service("l4", "h100"), ordered={"l4": 0, "h100": 0})
    assert short(stopped, l4=NOW - 5.0) == {"l4"}
    assert short(stopped, l4=NOW - 5.0, h100=NOW - 5.0) == set()
    serving = replace(stopped, ordered={"l4": 1, "h100": 0}, replicas=(THERE,))
    assert short(serving, l4=NOW - 5.0, h100=NOW - 5.0) == {"l4", "h100"}
