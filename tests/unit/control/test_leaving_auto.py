"""What runs stays when scaling.mode Auto is left, until spec.replicas is another number."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec.json import decode, encode

from quire_operator.planner.plan import Plan, plan
from quire_operator.resource.status import InferenceServiceStatus
from quire_operator.scaling.outcome import Outcome
from tests.unit.control.builders import H100, L4, NOW, SETTINGS, Cluster, service
from tests.unit.control.plans import said

MODES = pytest.mark.parametrize("mode", ["Recommend", "External"])


def scaled(**replicas: int) -> Cluster:
    """A service that scaling has brought to so many replicas; spec.replicas is its default."""
    cluster = Cluster(service(L4, H100, scaling={"minReplicas": 0}), {"l4": 9, "h100": 9})
    cluster.settle()
    observed = replace(cluster.observe(), is_scaling=True, scaled=Outcome(replicas=replicas))
    take(cluster, plan(observed, SETTINGS, NOW))
    return cluster


def take(cluster: Cluster, made: Plan) -> None:
    """Let the status be what was planned, and the operator begin anew with nothing else."""
    status = decode(encode(made.status), type=InferenceServiceStatus)
    cluster.service = type(cluster.service)(
        **{name: getattr(cluster.service, name) for name in cluster.service.__struct_fields__}
        | {"status": status}
    )


def leave(cluster: Cluster, mode: str, **spec: Any) -> None:
    """Change the mode, as `kubectl patch` would."""
    cluster.change(scaling={"mode": mode, "minReplicas": 0}, **spec)


def desired(cluster: Cluster) -> dict[str, int]:
    """As planned, by accelerator."""
    return {one.name: one.desired for one in cluster.plan().status.accelerators}


@MODES
def test_what_runs_stays_where_it_runs(mode: str) -> None:
    cluster = scaled(l4=1, h100=1)
    leave(cluster, mode)
    for _ in range(3):  # of each status that was written since
        assert desired(cluster) == {"l4": 1, "h100": 1}
        take(cluster, cluster.plan())

    assert "2 replicas stay as under Auto" in said(cluster.plan(), "ScalingActive")[2]


def test_a_single_one_that_stays_is_said_so() -> None:
    cluster = scaled(l4=1, h100=0)
    leave(cluster, "Recommend")
    assert "1 replica stays as under Auto" in said(cluster.plan(), "ScalingActive")[2]


@MODES
@pytest.mark.parametrize("replicas", [3, 0])
def test_spec_replicas_counts_once_it_is_set_anew(mode: str, replicas: int) -> None:
    cluster = scaled(l4=4, h100=0)
    leave(cluster, mode)
    cluster.apply()
    leave(cluster, mode, replicas=replicas)
    cluster.apply()
    assert sum(desired(cluster).values()) == replicas

    leave(cluster, mode, replicas=1)  # as it was under Auto: said anew all the same
    cluster.apply()
    assert sum(desired(cluster).values()) == 1
    assert "stay" not in said(cluster.plan(), "ScalingActive")[2]


@MODES
def test_a_number_that_comes_with_the_mode_counts_at_once(mode: str) -> None:
    cluster = scaled(l4=4, h100=0)
    leave(cluster, mode, replicas=6)

    assert sum(desired(cluster).values()) == 6


@MODES
def test_where_scaling_had_left_none_there_are_as_many_as_the_spec_says(mode: str) -> None:
    cluster = scaled(l4=0, h100=0)
    leave(cluster, mode)

    assert sum(desired(cluster).values()) == 1


def test_without_a_gateway_the_minimum_stays() -> None:
    cluster = Cluster(service(L4, scaling={"minReplicas": 4}), {"l4": 9})
    cluster.settle()
    cluster.change(scaling={"mode": "External", "minReplicas": 4})

    assert desired(cluster) == {"l4": 4}


def test_what_is_kept_outlives_suspension() -> None:
    cluster = scaled(l4=4, h100=0)
    cluster.change(suspend=True)
    take(cluster, cluster.plan())
    leave(cluster, "External", suspend=True)
    take(cluster, cluster.plan())
    assert desired(cluster) == {"l4": 0, "h100": 0}

    leave(cluster, "External", suspend=False)
    assert desired(cluster) == {"l4": 4, "h100": 0}


def test_an_accelerator_that_leaves_the_spec_has_its_part_elsewhere() -> None:
    cluster = scaled(l4=1, h100=1)
    leave(cluster, "External", accelerators=[L4])

    assert desired(cluster) == {"l4": 2}


def test_lower_bounds_are_kept_to_without_a_word_of_too_few() -> None:
    cluster = scaled(l4=4, h100=0)
    leave(cluster, "External", accelerators=[L4 | {"maxReplicas": 2}])

    assert desired(cluster) == {"l4": 2}
    assert said(cluster.plan(), "Degraded")[0] == "False"
