"""From what the cluster and gateways say to what scaling decides from."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from quire_operator.planner.observed import Deployment, Node, Observed, Pod
from quire_operator.reconciling.scaling_inputs import gpu_stock, service_inputs
from quire_operator.reconciling.scaling_reports import Report, SeenFleet
from quire_operator.scaling.inputs import Replica, ServiceInputs
from tests.api.servers import SIMULATED, RunningServer
from tests.unit.control.builders import CPU, H100, L4, NOW, service

ADDRESS = "10.0.0.7"


@pytest.fixture(scope="module")
def state() -> dict[str, Any]:
    """What an engine says of itself."""
    with RunningServer(*SIMULATED) as engine:
        found: dict[str, Any] = engine.get("/state").json()
        return found


def pod(name: str = "chat-l4-1", **fields: Any) -> Pod:
    known: dict[str, Any] = {
        "name": name,
        "accelerator": "l4",
        "template_hash": "a",
        "created_at": NOW,
        "is_ready": True,
        "is_scheduled": True,
        "address": ADDRESS,
    }
    return Pod(**(known | fields))


def report(*engines: dict[str, Any], at: float = 100.0, **fields: Any) -> Report:
    """One gateway's; as JSON, which is how it comes."""
    known = {
        "namespace": "models",
        "name": "chat",
        "demand": {
            "seconds": 60.0,
            "prompt_bounds": [128],
            "output_bounds": [32, 64],
            "arrivals": [5, 6],
            "ended": [[1, 2, 3], [4, 5, 6]],
            "prompt_tokens": 1000,
            "cached_tokens": 100,
            "first_token": {"met": 9, "missed": 1},
        },
        "queue": {
            "interactive": {"waiting": 3, "oldest_seconds": 1.5},
            "background": {"waiting": 7, "oldest_seconds": 90.0},
        },
        "engines": list(engines),
    }
    fleet = {"gateway": "g1", "schema_version": 1, "services": [known | fields]}
    return Report(fleet=msgspec.json.decode(msgspec.json.encode(fleet), type=SeenFleet), at=at)


def engine(state: dict[str, Any] | None, silent: float = 0.5, port: int = 8000) -> dict[str, Any]:
    return {"address": f"{ADDRESS}:{port}", "silent_seconds": silent, "state": state}


def inputs(
    *reports: Report, pods: tuple[Pod, ...] = (), gateways: int = 1, **fields: Any
) -> ServiceInputs:
    observed = Observed(service=service(L4, H100), pods=pods)
    return service_inputs(replace(observed, **fields), reports, gateways, clock=102.0)


def only(found: ServiceInputs) -> Replica:
    [one] = found.replicas
    return one


def test_the_spec_in_scalings_units() -> None:
    spec: dict[str, Any] = {
        "replicas": 3,
        "priority": 4,
        "memoryPressure": {"target": 60, "background": 70, "admission": 90},
        "admission": {"maxQueueSeconds": 12},
        "scaling": {
            "minReplicas": 0,
            "maxReplicas": 7,
            "maxCostPerHour": "12.5",
            "scaleToZeroAfter": "10m",
            "slo": {"timeToFirstToken": "2s", "timePerOutputToken": "60ms", "percentile": 90},
            "stabilization": {"up": "15s", "down": "2m"},
        },
    }
    found = service_inputs(Observed(service=service(L4, CPU, **spec)), (), 2, clock=0.0)
    assert (found.key, found.priority, found.first_replicas) == ("models/chat", 4, 3)
    assert (found.min_replicas, found.max_replicas, found.max_cost_per_hour) == (0, 7, 12.5)
    assert (found.slo.first_token_seconds, found.slo.per_token_seconds) == (2.0, 0.06)
    assert found.slo.percentile == 90
    pressure = found.pressure
    assert (pressure.target, pressure.background, pressure.admission) == (0.6, 0.7, 0.9)
    assert (found.up_seconds, found.down_seconds) == (15.0, 120.0)
    assert (found.max_queue_seconds, found.scale_to_zero_after_seconds) == (12.0, 600.0)
    assert (found.gateways, found.num_gateways) == ((), 2)
    l4, cpu = found.accelerators
    assert (l4.cost_per_hour, l4.max_replicas, l4.products) == (0.8, 8, ("NVIDIA-L4",))
    assert (cpu.products, cpu.expected) == ((), None)


def test_without_promises_there_are_none() -> None:
    found = inputs()
    assert (found.slo.first_token_seconds, found.slo.per_token_seconds) == (None, None)
    assert (found.max_cost_per_hour, found.scale_to_zero_after_seconds) == (None, None)


def test_counts_of_gateways_with_their_age() -> None:
    [gateway] = inputs(report()).gateways
    assert (gateway.gateway, gateway.age_seconds, gateway.seconds) == ("g1", 2.0, 60.0)
    assert (gateway.arrivals, gateway.ended) == ((5, 6), ((1, 2, 3), (4, 5, 6)))
    assert (gateway.num_waiting, gateway.oldest_seconds) == (3, 1.5)
    assert gateway.num_background_waiting == 7
    assert (gateway.num_first_token_met, gateway.num_first_token_missed) == (9, 1)
    assert (gateway.prompt_tokens, gateway.cached_tokens) == (1000, 100)


def test_a_gateway_that_does_not_know_the_service_says_nothing_of_it() -> None:
    found = inputs(report(name="other"), gateways=1)
    assert (found.gateways, found.num_gateways) == ((), 1)


def test_an_engine_is_as_old_as_its_silence_and_the_report(state: dict[str, Any]) -> None:
    one = only(inputs(report(engine(state, silent=3.0)), pods=(pod(),)))
    assert one.engine is not None
    assert one.engine.age_seconds == pytest.approx(5.0)
    assert one.engine.num_blocks == state["blocks"]["total"]
    assert one.engine.capability is not None
    assert one.engine.capability.max_num_seqs == state["sequences"]["slots"]


def test_of_several_gateways_the_one_counts_that_heard_last(state: dict[str, Any]) -> None:
    draining = state | {"is_draining": True}
    reports = (
        report(engine(state, silent=9.0), at=102.0),
        report(engine(draining, silent=1.0), at=95.0),
        report(engine(None, silent=0.0), at=102.0),
    )
    one = only(inputs(*reports, pods=(pod(),)))
    assert one.engine is not None
    assert one.engine.age_seconds == pytest.approx(8.0)
    assert one.engine.is_draining


def test_an_engine_at_another_address_is_not_this_pods(state: dict[str, Any]) -> None:
    assert only(inputs(report(engine(state, port=9000)), pods=(pod(),))).engine is None
    there = pod(address="fd00::7")
    seen = engine(state) | {"address": "[fd00::7]:8000"}
    assert only(inputs(report(seen), pods=(there,))).engine is not None


@pytest.mark.parametrize(
    ("fields", "is_failing"),
    [
        ({}, False),
        ({"waiting_reason": "ImagePullBackOff", "is_ready": False}, True),
        ({"num_restarts": 3, "is_ready": False}, True),
        ({"num_restarts": 2, "is_ready": False}, False),
        ({"num_restarts": 9}, False),
    ],
)
def test_what_cannot_start_is_failing(fields: dict[str, Any], is_failing: bool) -> None:
    assert only(inputs(pods=(pod(**fields),))).is_failing is is_failing


def test_one_whose_node_is_missed_is_no_longer_ready_and_may_serve() -> None:
    missed = only(inputs(pods=(pod(is_ready=False, has_ready_containers=True),)))
    assert (missed.is_ready, missed.is_missed) == (False, True)
    well = only(inputs(pods=(pod(has_ready_containers=True),)))
    assert (well.is_ready, well.is_missed) == (True, False)


def test_a_pod_without_a_node_has_waited_since_the_scheduler_said_so() -> None:
    since = NOW - timedelta(seconds=90)
    waits = pod(is_ready=False, is_scheduled=False, unschedulable_since=since)
    one = only(inputs(pods=(waits,)))
    assert (one.is_scheduled, one.waiting_since) == (False, since.timestamp())
    assert only(inputs(pods=(pod(is_ending=True),))).is_ending


def test_replicas_that_may_not_be_made_are_failing_ones() -> None:
    deployment = Deployment(
        accelerator="l4", replicas=3, is_observed=True, refused_pods="exceeded quota"
    )
    found = inputs(pods=(pod(),), deployments={"l4": deployment})
    assert found.ordered == {"l4": 3}
    assert [one.is_failing for one in found.replicas] == [False, True, True]
    assert len({one.name for one in found.replicas}) == 3
    fine = inputs(pods=(pod(),), deployments={"l4": replace(deployment, refused_pods="")})
    assert len(fine.replicas) == 1


def test_a_rollout_of_any_accelerator_is_one_of_the_service() -> None:
    done = Deployment(
        accelerator="l4", replicas=2, is_observed=True, num_updated=2, num_pods=2, num_ready=2
    )
    rolling = replace(done, accelerator="h100", num_updated=1)
    assert not inputs(deployments={"l4": done}).is_rolling_out
    assert inputs(deployments={"l4": done, "h100": rolling}).is_rolling_out


def test_what_pods_are_made_of_is_as_deployments_say() -> None:
    made = Deployment(accelerator="l4", replicas=0, is_observed=True, inputs_hash="abc")
    assert [one.made_of for one in inputs(deployments={"l4": made}).accelerators] == ["abc", ""]


def test_what_a_replica_should_do_is_known_of_models_that_are_known() -> None:
    small = service(L4, model={"source": "hf://meta-llama/Llama-3.2-3B"})
    [known] = service_inputs(Observed(service=small), (), 1, clock=0.0).accelerators
    assert known.expected is not None
    assert known.expected.num_blocks > 1000
    [unknown] = service_inputs(Observed(service=service(L4)), (), 1, clock=0.0).accelerators
    assert unknown.expected is None
    two = service(L4 | {"count": 2}, model={"source": "hf://meta-llama/Llama-3.2-3B"})
    [several] = service_inputs(Observed(service=two), (), 1, clock=0.0).accelerators
    assert (several.expected, several.gpus_per_replica) == (None, 2)


def test_of_several_products_the_least_is_expected() -> None:
    hbm3, pcie = "NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-PCIe"
    model = {"source": "hf://meta-llama/Meta-Llama-3-8B@main", "name": "llama3"}
    found = {
        products: inputs(service=service(H100 | {"products": products.split()}, model=model))
        for products in (hbm3, pcie, f"{hbm3} {pcie}", f"{pcie} {hbm3}")
    }
    expected = {name: one.accelerators[0].expected for name, one in found.items()}
    assert expected[pcie] is not None
    assert expected[pcie] != expected[hbm3]
    assert expected[f"{hbm3} {pcie}"] == expected[f"{pcie} {hbm3}"] == expected[pcie]


def test_gpus_are_counted_on_nodes_that_are_ready() -> None:
    node = Node(name="a", product="NVIDIA-L4", num_gpus=4, is_ready=True, created_at=NOW)
    nodes = (
        node,
        replace(node, name="b", num_gpus=2),
        replace(node, name="c", is_ready=False),
        replace(node, name="d", product="", num_gpus=0),
        replace(node, name="e", product="NVIDIA-H200", num_gpus=8),
    )
    found = [(one.product, one.num_gpus, one.is_final) for one in gpu_stock(nodes)]
    assert found == [("NVIDIA-H200", 8, False), ("NVIDIA-L4", 6, False)]
