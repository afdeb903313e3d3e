"""What is said of a service: the truth, in words, once."""

from dataclasses import replace

from msgspec import structs

from quire_operator.planner.events import transitions
from quire_operator.planner.plan import plan
from quire_operator.resource.status import CONDITION_TYPES
from tests.unit.control.builders import CPU, H100, L4, NOW, SETTINGS, Cluster, external, service
from tests.unit.control.plans import planned, said


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
    assert made.status.ready_on == "2/2 l4"


def test_where_replicas_run_is_said_of_all_accelerators_that_have_some() -> None:
    asked = service(CPU, L4 | {"minReplicas": 2}, H100 | {"minReplicas": 1}, **external(3))
    cluster = Cluster(asked, {"l4": 1, "h100": 1})
    cluster.settle()
    assert cluster.plan().status.ready_on == "1/2 l4, 1/1 h100"


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
    away = plan(replace(cluster.observe(), gateways={}), SETTINGS, NOW)
    blind = plan(replace(cluster.observe(), gateways={}, nodes=None), SETTINGS, NOW)

    assert said(none, "Ready")[:2] == ("False", "NoGateway")
    assert "--gateway-namespace" in said(none, "Degraded")[2]
    assert "no pod of the gateway is ready in the namespace quire-system" in said(away, "Ready")[2]
    assert "--namespaces" in said(blind, "Ready")[2]
    assert "--namespaces" not in said(away, "Ready")[2]
    local = plan(cluster.observe(), replace(SETTINGS, gateway=None, is_local=True), NOW)
    assert said(local, "Ready")[0] == "True"


def test_nobody_is_told_that_a_service_scales_while_nothing_scales_it() -> None:
    made = Cluster(service(L4), {}).plan()
    assert said(made, "ScalingActive")[:2] == ("False", "FixedReplicas")


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


def test_what_nobody_knows_yet_is_no_event() -> None:
    cluster = Cluster(service(L4, **external(1)), {"l4": 1})
    cluster.settle()
    settled = cluster.plan().status
    (known,) = [one for one in settled.conditions if one.type == "GPUsAvailable"]

    def told(status: str, reason: str) -> list[str]:
        other = structs.replace(known, status=status, reason=reason)
        conditions = tuple(other if one is known else one for one in settled.conditions)
        after = structs.replace(settled, conditions=conditions)
        return [one.reason for one in transitions(settled, after, "Auto")]

    assert told("Unknown", "NotScheduledYet") == []
    assert told("False", "NoNodes") == ["NoNodes"]
