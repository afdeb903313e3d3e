"""Accelerators that leave the spec while scaling decides how many replicas there are."""

from dataclasses import dataclass, replace

from msgspec import convert, to_builtins

from quire_operator.planner.observed import Observed
from quire_operator.planner.placement import place
from quire_operator.reconciling.scaling_inputs import service_inputs
from quire_operator.reconciling.scaling_records import ScalingRecords
from quire_operator.resource.status import ScalingDecision
from quire_operator.scaling.decision import ServiceDecision
from quire_operator.scaling.inputs import LeavingInputs
from quire_operator.scaling.outcome import Outcome
from tests.unit.control.builders import H100, L4, NOW, SETTINGS, Cluster, service

_GPUS = {"l4": 9, "h100": 9}


@dataclass
class Scaled(Cluster):
    """With what scaling decided last."""

    scaled: Outcome | None = None

    def observe(self) -> Observed:
        return replace(super().observe(), is_scaling=True, scaled=self.scaled)

    @property
    def counts(self) -> dict[str, int]:
        """What Deployments ask for."""
        return {name: one.replicas for name, one in self.deployments.items()}


def swapped() -> Scaled:
    """Four replicas serve on an accelerator that the spec has no more; nobody has decided yet."""
    made = service(L4, scaling={"mode": "Auto", "maxReplicas": 9})
    cluster = Scaled(made, _GPUS, scaled=Outcome(replicas={"l4": 4}))
    cluster.settle()
    assert cluster.num_ready() == 4
    cluster.change(accelerators=[H100 | {"maxReplicas": 9}])
    cluster.least_ready = 4
    cluster.settle()
    return cluster


def test_all_of_it_stays_until_scaling_says_otherwise() -> None:
    cluster = swapped()
    assert cluster.counts == {"h100": 0, "l4": 4}
    progressing = next(one for one in cluster.plan().status.conditions if one.type == "Progressing")
    assert (progressing.status, progressing.reason) == ("True", "ReplacingAccelerator")
    # a node that is drained takes one of them at a time
    assert "PodDisruptionBudget" in {one["kind"] for one in cluster.objects}

    cluster.scaled = Outcome(replicas={"h100": 2}, leaving={"l4": 4})
    cluster.settle()
    assert cluster.counts == {"h100": 2, "l4": 4}

    cluster.scaled = Outcome(replicas={"h100": 2}, leaving={"l4": 1})
    cluster.settle()
    assert cluster.counts == {"h100": 2, "l4": 1}
    assert cluster.plan().status.hourly_cost is None  # its price left the spec, too

    cluster.least_ready = 3
    cluster.scaled = Outcome(replicas={"h100": 2})
    cluster.settle()
    assert cluster.counts == {"h100": 2}
    assert cluster.plan().status.hourly_cost is not None
    assert cluster.least_ready == 2


def test_an_operator_that_has_just_started_takes_none_of_it_away() -> None:
    cluster = swapped()
    cluster.scaled = None
    cluster.settle()
    assert cluster.counts == {"h100": 0, "l4": 4}


def test_what_comes_back_into_the_spec_runs_on() -> None:
    cluster = swapped()
    cluster.scaled = Outcome(replicas={"h100": 2}, leaving={"l4": 4})
    cluster.settle()
    cluster.change(accelerators=[L4])
    cluster.settle()
    assert cluster.counts == {"h100": 2, "l4": 4}


def test_suspended_means_none_of_it_either() -> None:
    cluster = swapped()
    cluster.change(suspend=True)
    cluster.settle()
    assert sum(cluster.counts.values()) == 0


def test_scaling_is_told_of_it_with_its_gpus() -> None:
    cluster = swapped()
    found = cluster.observe()
    pods = {
        name: replace(one, live_template=_template()) for name, one in found.deployments.items()
    }
    seen = service_inputs(replace(found, deployments=pods), [], 1, 0.0)
    assert seen.leaving == (LeavingInputs(name="l4", replicas=4, products=("NVIDIA-L4",)),)
    assert [one.name for one in seen.accelerators] == ["h100"]


def test_a_decision_says_that_it_goes() -> None:
    decided = ServiceDecision(
        key="models/chat",
        action="Limit",
        replicas={"h100": 2},
        wanted={"h100": 2},
        reason="l4 left the spec, and others serve in its place",
    )
    record = ScalingRecords().take(swapped().observe(), decided, NOW).record
    assert record is not None
    assert {one.name: one.replicas for one in record.before} == {"h100": 0, "l4": 4}
    assert {one.name: one.replicas for one in record.after} == {"h100": 2, "l4": 0}


def test_what_was_decided_in_another_mode_is_no_order() -> None:
    made = service(L4, replicas=4, scaling={"mode": "Recommend", "maxReplicas": 9})
    cluster = Cluster(made, _GPUS)
    cluster.settle()
    assert cluster.num_ready() == 4
    cluster.change(accelerators=[H100 | {"maxReplicas": 9}])
    cluster.free_gpus["h100"] = 0
    cluster.settle()
    records = ScalingRecords()
    advice = ServiceDecision(
        key="models/chat", action="Hold", replicas={"h100": 4}, wanted={"h100": 2}, reason="so"
    )
    records.take(cluster.observe(), advice, NOW)
    assert records.ordered(cluster.service.key) is None

    cluster.change(scaling={"mode": "Auto", "maxReplicas": 9})
    found = place(records.add_to(cluster.observe()), SETTINGS, NOW)
    assert (found.replicas, found.leaving) == ({"h100": 4}, {"l4": 4})

    decided = replace(advice, action="Limit", replicas={"h100": 2}, leaving={"l4": 4})
    records.take(cluster.observe(), decided, NOW)
    found = place(records.add_to(cluster.observe()), SETTINGS, NOW)
    assert (found.replicas, found.leaving) == ({"h100": 2}, {"l4": 4})


def test_a_record_of_more_accelerators_than_the_status_takes_has_those_that_change() -> None:
    names = [f"a{number}" for number in range(16)]
    accelerators = [L4 | {"name": name} for name in names]
    made = service(*accelerators, scaling={"mode": "Auto"})
    one_each = dict.fromkeys(names, 1)
    cluster = Scaled(made, dict(one_each), scaled=Outcome(replicas=one_each))
    cluster.settle()
    decided = ServiceDecision(
        key="models/chat",
        action="Limit",
        replicas=one_each | {"a15": 2},
        wanted={},
        leaving={"b0": 1, "b1": 3},
        reason="b1 left the spec",
    )
    record = ScalingRecords().take(cluster.observe(), decided, NOW).record

    assert record is not None
    assert len(record.after) == 16
    assert {"a15", "b0", "b1"} <= {one.name for one in record.after}
    convert(to_builtins(record), ScalingDecision)


def _template() -> dict[str, object]:
    """As the API server has it."""
    wanted = {
        "key": "nvidia.com/gpu.product",
        "operator": "In",
        "values": ["NVIDIA-L4"],
    }
    terms = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return {"spec": {"affinity": affinity}}
