"""What engines tell, as the status has it."""

from dataclasses import replace

from msgspec import structs

from quire_operator.planner.observed import LoadingEngine
from quire_operator.planner.plan import Plan, plan
from quire_operator.reconciling.status_writer import without_figures
from quire_operator.scaling.outcome import Outcome
from tests.unit.control.builders import (
    H100,
    L4,
    NOW,
    SETTINGS,
    Cluster,
    external,
    service,
    with_status,
)
from tests.unit.control.plans import engine, failing, planned, said


def test_engines_that_do_not_answer_are_named_with_their_address() -> None:
    cluster = Cluster(service(L4, **external(1)), {"l4": 1})
    cluster.settle()
    (pod,) = cluster.pods
    cluster.pods = [replace(pod, address="10.0.0.9")]
    unheard = {pod.name: "no answer in time"}
    made = plan(replace(cluster.observe(), unheard=unheard), SETTINGS, NOW)

    assert said(made, "MetricsFresh")[:2] == ("False", "NotAnswering")
    assert f"{pod.name} at 10.0.0.9:8000: no answer in time" in said(made, "MetricsFresh")[2]


def test_background_is_refused_once_all_engines_have_promised_so_much() -> None:
    cluster = Cluster(service(L4, **external(1), memoryPressure={"background": 30}), {"l4": 1})
    cluster.settle()
    pod = cluster.pods[0].name
    full = plan(replace(cluster.observe(), engines={pod: engine(100)}), SETTINGS, NOW)

    assert full.status.admission_state == "BackgroundRefused"  # 300 of 1000 are reserved
    assert cluster.plan().status.admission_state == "Open"


def test_figures_are_rounded_so_that_they_are_rarely_written() -> None:
    cluster = Cluster(service(L4, H100, **external(1)), {"l4": 1})
    cluster.settle()
    pod = cluster.pods[0].name
    made = [
        plan(replace(cluster.observe(), engines={pod: engine(held)}), SETTINGS, NOW)
        for held in (98, 101)
    ]

    assert made[0].status == made[1].status
    assert made[0].status.accelerators[0].blocks_held_percent == 10
    assert made[0].status.blocks_held_percent == 10
    assert made[0].status.resolved_revision == "abc"
    assert said(made[0], "MetricsFresh")[0] == "True"
    assert said(cluster.plan(), "MetricsFresh")[:2] == ("Unknown", "NotAskedYet")


def test_how_far_a_model_has_come_is_a_figure_and_what_it_is_at_a_transition() -> None:
    pods = [replace(failing(), name=name) for name in ("p1", "p2")]

    def at(*several: LoadingEngine) -> Plan:
        names = [pod.name for pod in pods]
        return planned(*pods, loading=dict(zip(names, several, strict=False)))

    nothing, half = at(), at(LoadingEngine("Fetching", 50), LoadingEngine("Loading", 5))
    (accelerator,) = half.status.accelerators
    assert (accelerator.loading_phase, accelerator.loading_percent) == ("Fetching", 50)
    assert half.status.loading_percent == 50
    assert nothing.status.loading_percent is None
    assert said(nothing, "ModelLoaded")[1] == "Loading"
    assert said(half, "ModelLoaded") == (
        "False",
        "Fetching",
        "2 engines fetch the model; accelerators[].loadingPercent says how far",
    )
    pods.pop()
    assert said(at(LoadingEngine("Fetching", 50)), "ModelLoaded")[2].startswith("1 engine fetches ")
    assert said(at(), "ModelLoaded")[2].startswith("1 engine fetches or loads the model")
    pods.append(replace(failing(), name="p2"))
    further = at(LoadingEngine("Fetching", 95), LoadingEngine("Loading", 5))
    assert without_figures(further.status) == without_figures(half.status)
    assert further.status != half.status
    loading = at(LoadingEngine("Loading", 0), LoadingEngine("Loading", 5))
    assert without_figures(loading.status) != without_figures(half.status)
    assert said(loading, "ModelLoaded")[1] == "Loading"


def test_a_revision_is_pinned_until_another_or_a_restart_is_asked_for() -> None:
    cluster = Cluster(service(L4, **external(1)), {"l4": 2})
    cluster.settle()

    def tell(commit: str) -> None:
        heard = {cluster.pods[0].name: replace(engine(0), revision=commit)}
        made = plan(replace(cluster.observe(), engines=heard), SETTINGS, NOW)
        cluster.service = with_status(cluster.service, made)

    def pin() -> str | None:
        objects = cluster.plan().objects
        live = next(one for one in objects if one["metadata"]["name"] == "chat-live")
        pinned: str | None = live["data"].get("pin")
        return pinned

    assert pin() is None
    tell("aaa")
    assert pin() == "hf://acme/thing@main=aaa"
    pods = cluster.num_made
    tell("bbb")  # one that began with another: what is pinned stays
    cluster.settle()
    assert (pin(), cluster.num_made) == ("hf://acme/thing@main=aaa", pods)

    cluster.change(model={"source": "hf://acme/thing@next"})
    assert pin() is None
    cluster.settle()
    tell("bbb")
    assert pin() == "hf://acme/thing@next=bbb"
    restarted = {"serving.quire.dev/restarted-at": "now"}
    cluster.service = structs.replace(cluster.service, annotations=restarted)
    assert pin() is None


def test_progress_is_rounded_down_so_that_the_end_is_the_end() -> None:
    fractions = {0.0: 0, 0.049: 0, 0.05: 5, 0.999: 95, 1.0: 100}
    for fraction, percent in fractions.items():
        found = engine(0, loading={"phase": "fetching", "stage": "x", "fraction": fraction})
        assert found.loading == LoadingEngine("Fetching", percent)


def test_tokens_of_the_service_are_those_of_what_answers_and_none_if_some_are_not_known() -> None:
    cluster = Cluster(
        service(L4 | {"minReplicas": 2}, H100 | {"minReplicas": 1}, **external(3)),
        {"l4": 2, "h100": 1},
    )
    cluster.settle()

    def tokens(**each: int) -> int | None:
        scaled = Outcome(replicas={"l4": 2, "h100": 1}, tokens_per_second=each)
        made = plan(replace(cluster.observe(), scaled=scaled), SETTINGS, NOW)
        return made.status.tokens_per_second

    assert tokens(l4=300, h100=5000) == 5600
    assert tokens(l4=300) is None
