"""Replicas go where they are cheapest, and what serves is not taken away before its stand-in is."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire_operator.planner.observed import Node
from tests.unit.control.builders import CPU, H100, L4, NOW, Cluster, external, service


def test_one_that_is_renamed_while_it_has_all_gpus_is_said_to_wait_for_a_node() -> None:
    cluster = Cluster(service(L4, **external(2)), {"l4": 2})
    cluster.settle()
    cluster.change(accelerators=[L4 | {"name": "renamed"}])
    cluster.free_gpus["renamed"] = 1
    cluster.settle()
    cluster.wait(181)
    cluster.settle()

    assert cluster.num_ready() == 2
    assert _condition(cluster, "GPUsAvailable")[:2] == ("False", "NoGPUNode")
    assert _condition(cluster, "Degraded")[1] != "MaxReplicasReached"


def test_what_leaves_stays_while_all_nodes_are_missed() -> None:
    cluster = Cluster(service(L4, **external(2)), {"l4": 2})
    cluster.settle()
    cluster.change(accelerators=[L4 | {"name": "renamed"}])
    cluster.apply()
    cluster.pods = [replace(pod, is_ready=False, has_ready_containers=True) for pod in cluster.pods]
    cluster.apply()
    assert cluster.deployments["l4"].replicas == 2


def test_the_cheapest_is_filled_first_whatever_the_order() -> None:
    cluster = Cluster(service(H100, L4, **external(9)), {"l4": 99, "h100": 99})

    assert cluster.plan().status.desired_replicas == 9
    assert _desired(cluster) == {"h100": 1, "l4": 8}


def test_minimums_come_first() -> None:
    both = [L4 | {"minReplicas": 1}, H100 | {"minReplicas": 2}]
    assert _desired(Cluster(service(*both, **external(4)), {})) == {"l4": 2, "h100": 2}


def test_a_price_of_the_catalogue_counts_where_the_user_gave_none() -> None:
    priceless = {name: value for name, value in H100.items() if name != "costPerHour"}
    cheap = L4 | {"costPerHour": "1"}
    assert _desired(Cluster(service(priceless, cheap, **external(1)), {})) == {"h100": 0, "l4": 1}


@pytest.mark.parametrize(("mode", "wanted"), [("Auto", 3), ("External", 1), ("Recommend", 1)])
def test_who_decides(mode: str, wanted: int) -> None:
    made = service(L4, replicas=1, scaling={"mode": mode, "minReplicas": 3})
    assert Cluster(made, {}).plan().status.desired_replicas == wanted


def test_suspended_means_none() -> None:
    cluster = Cluster(service(L4, suspend=True, **external(3)), {"l4": 9})
    cluster.settle()

    assert cluster.pods == []
    assert _condition(cluster, "Ready")[:2] == ("False", "Suspended")


def test_no_node_in_time_means_the_next_cheapest_and_the_waiting_one_stays_until_then() -> None:
    cluster = Cluster(service(L4, H100, **external(3)), {"l4": 2})
    cluster.settle()
    assert _condition(cluster, "Ready")[:2] == ("False", "NoGPUNode")

    cluster.wait(181)
    cluster.settle()
    assert _desired(cluster) == {"l4": 3, "h100": 1}  # no node for the stand-in either: both wait

    cluster.free_gpus["h100"] = 1
    cluster.settle()
    assert _desired(cluster) == {"l4": 2, "h100": 1}
    assert cluster.num_ready() == 3


def test_it_comes_back_when_a_node_appears_and_serves_all_the_while() -> None:
    cluster = Cluster(service(L4, H100, **external(3)), {"l4": 2, "h100": 9})
    cluster.settle()
    cluster.wait(181)
    cluster.settle()
    assert _desired(cluster) == {"l4": 2, "h100": 1}

    cluster.wait(5)
    node = Node(name="n", product="NVIDIA-L4", num_gpus=1, is_ready=True, created_at=cluster.now)
    cluster.nodes.append(node)
    cluster.free_gpus["l4"] = 3
    cluster.least_ready = 3
    cluster.settle()

    assert _desired(cluster) == {"l4": 3, "h100": 0}
    assert cluster.least_ready == 3


def test_it_is_tried_again_after_a_while_and_does_not_flap() -> None:
    cluster = Cluster(service(L4, H100, **external(2)), {"l4": 1, "h100": 9})
    cluster.settle()
    cluster.wait(181)
    cluster.settle()
    cluster.least_ready = 2
    tries = 0
    for _ in range(60):  # an hour, minute by minute
        cluster.wait(60)
        cluster.settle()
        tries += any(pod.unschedulable_since == cluster.now for pod in cluster.pods)

    assert cluster.least_ready == 2
    assert 3 <= tries <= 6
    assert _desired(cluster)["h100"] == 1


def test_a_plan_says_when_time_alone_will_change_it() -> None:
    cluster = Cluster(service(L4, H100, **external(1)), {})
    cluster.settle()

    assert cluster.plan().look_again_at == NOW + timedelta(minutes=3)


def test_a_clock_that_was_set_back_forgets_what_was_short() -> None:
    cluster = Cluster(service(L4, H100, **external(1)), {"h100": 1})
    cluster.settle()
    cluster.wait(181)
    cluster.settle()
    assert _desired(cluster) == {"l4": 0, "h100": 1}

    cluster.now = NOW - timedelta(days=1)
    assert _desired(cluster) == {"l4": 1, "h100": 1}


def test_a_removed_accelerator_serves_until_the_others_are_ready() -> None:
    cluster = Cluster(service(L4, H100, **external(2)), {"l4": 2})
    cluster.settle()
    cluster.change(accelerators=[H100 | {"maxReplicas": 4}])
    cluster.least_ready = 2
    cluster.settle()

    assert cluster.num_ready("l4") == 2
    assert _condition(cluster, "Progressing")[:2] == ("True", "ReplacingAccelerator")
    cluster.free_gpus["h100"] = 1
    cluster.settle()
    assert (cluster.num_ready("l4"), cluster.num_ready("h100")) == (1, 1)

    cluster.free_gpus["h100"] = 2
    cluster.settle()
    assert set(cluster.deployments) == {"h100"}
    assert _condition(cluster, "Ready")[:2] == ("True", "AllReady")
    assert cluster.least_ready == 2


def test_a_removed_accelerator_whose_template_was_spoilt_runs_on_as_it_is() -> None:
    cluster = Cluster(service(L4, H100, **external(1)), {"l4": 1})
    cluster.settle()
    live = cluster.deployments["l4"].live_template
    cluster.deployments["l4"] = replace(cluster.deployments["l4"], template="{")
    cluster.change(accelerators=[H100])
    cluster.least_ready = 1
    cluster.settle()

    assert cluster.num_ready("l4") == 1
    assert cluster.deployments["l4"].live_template == live
    cluster.free_gpus["h100"] = 1
    cluster.settle()
    assert set(cluster.deployments) == {"h100"}
    assert cluster.least_ready == 1


def test_a_spoilt_template_is_not_what_runs_once_its_accelerator_is_back() -> None:
    cluster = Cluster(service(L4, H100, **external(1)), {"l4": 1})
    cluster.settle()
    made = cluster.deployments["l4"]
    others = {"spec": {"containers": [{"name": "engine", "image": "another:1"}]}}
    cluster.deployments["l4"] = replace(made, template="{", live_template=others)
    cluster.change(accelerators=[H100])
    cluster.settle()
    assert cluster.deployments["l4"].live_template == others
    cluster.change(accelerators=[L4, H100])
    cluster.settle()

    assert cluster.deployments["l4"].template == made.template


def test_more_than_all_accelerators_may_have_is_said() -> None:
    cluster = Cluster(service(L4 | {"maxReplicas": 2}, CPU | {"maxReplicas": 1}, **external(5)), {})

    assert cluster.plan().status.desired_replicas == 3
    cluster.apply()
    assert _condition(cluster, "Degraded")[1] == "MaxReplicasReached"


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_whatever_happens_it_settles_and_serves_what_the_gpus_allow(data: st.DataObject) -> None:
    counts = st.integers(0, 4)
    cluster = Cluster(service(L4, H100, **external(data.draw(counts))), {})
    for _ in range(data.draw(st.integers(1, 6))):
        what = data.draw(
            st.sampled_from(("replicas", "gpus", "time", "killed", "change", "accelerators"))
        )
        if what == "replicas":
            cluster.change(replicas=data.draw(counts))
        elif what == "gpus":
            cluster.free_gpus = {"l4": data.draw(counts), "h100": data.draw(counts)}
            cluster.pods = [
                replace(pod, is_scheduled=False, is_ready=False) for pod in cluster.pods
            ]
        elif what == "time":
            cluster.wait(data.draw(st.sampled_from((1, 181, 700, -300, 86400))))
        elif what == "killed" and cluster.pods:
            cluster.pods.pop()
        elif what == "accelerators":
            cluster.change(accelerators=data.draw(st.sampled_from(([L4, H100], [H100], [L4]))))
        else:
            cluster.change(engine={"maxNumSeqs": data.draw(st.sampled_from((8, 16)))})
        cluster.settle(60)
    for _ in range(3):
        cluster.wait(200)
        cluster.settle(60)

    wanted = cluster.service.spec.replicas
    usable = sum(
        min(cluster.free_gpus.get(one.name, 0), one.max_replicas)
        for one in cluster.service.spec.accelerators
    )
    # what was removed may serve, too
    assert min(wanted, usable) <= cluster.num_ready() <= wanted
    assert cluster.plan().objects == tuple(cluster.objects)
    assert cluster.plan().status == cluster.service.status
    assert cluster.plan().events == ()


def _desired(cluster: Cluster) -> dict[str, int]:
    return {one.name: one.desired for one in cluster.plan().status.accelerators}


def _condition(cluster: Cluster, kind: str) -> tuple[str, str, str]:
    found = next(one for one in cluster.service.status.conditions if one.type == kind)
    return found.status, found.reason, found.message
