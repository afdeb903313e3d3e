"""Replicas follow the traffic over two types of GPU, up and down again, and no stream is cut.

    OpenAI's client ── Envoy ── gateways ── L4 x 2 (cheap), H100 x 2 (dear)
                                   └── counts, every second ── operator

Installed by the chart; the sample of mixed GPUs, with engines of two seats, so that a few streams
are much.
"""

from collections.abc import Iterator

import pytest

from hack.cluster.cluster import Cluster
from tests.cluster.helm import Helm
from tests.cluster.operators import SYSTEM
from tests.nodes.installing import HOST, WAIT, apply_mixed, make_namespace, remove_kind
from tests.nodes.outside import streamed, way_in
from tests.nodes.seen import pods_of, show, uids
from tests.nodes.services import Body, Service
from tests.nodes.streams import Load

QUESTION: Body = {
    "model": "llama3-8b",
    "messages": [{"role": "user", "content": "Once upon a time"}],
    "max_tokens": 60,
}
SMALL: Body = {
    "engine": {"maxNumSeqs": 2, "maxNumBatchedTokens": 2048, "drainSeconds": 60},
    "replicas": 1,
    "accelerators": [{"name": "l4", "maxReplicas": 2}],
    "scaling": {
        "minReplicas": 1,
        "maxReplicas": 4,
        "slo": {"timeToFirstToken": "20s"},
        "stabilization": {"down": "30s"},
    },
    "admission": {"maxQueueSeconds": 60},
}
_DECIDED = "quire_operator_scaling_decide_seconds_count"


@pytest.fixture
def installed(bare_cluster: Cluster, helm: Helm) -> Iterator[Cluster]:
    """With the chart, which looks at the traffic every second."""
    make_namespace(bare_cluster, SYSTEM)
    helm.install(*WAIT, "--set=operator.scaleSeconds=1")
    yield bare_cluster
    helm.uninstall()
    remove_kind(bare_cluster)
    bare_cluster.api.call("delete", "namespace", SYSTEM, "--timeout=110s")


def test_replicas_of_two_types_come_with_the_load_and_go_with_it(
    installed: Cluster, restricted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    service = apply_mixed(installed, restricted, **SMALL)
    assert replicas(service) == {"l4": 1, "h100": 0}
    streamed(installed, HOST, "llama3-8b")

    with Load(way_in(installed, HOST), QUESTION, num_streams=8) as load:
        service.wait(lambda: replicas(service)["h100"] >= 1, "an H100 is asked for")
        service.wait_for("Ready", "True")
        load.wait_for_more()
        most = replicas(service)
        restart_operators(service)
        assert sum(replicas(service).values()) >= sum(most.values())  # none is taken away
    with Load(way_in(installed, HOST), QUESTION, num_streams=1, pause_seconds=6) as trickle:
        service.wait(lambda: sum(replicas(service).values()) == 1, "one is left", seconds=400)
        service.wait(lambda: len(pods_of(installed, "engine", restricted)) == 1, "others end")
        trickle.wait_for_more()

    show(capsys, load.table("replicas come"))
    show(capsys, trickle.table("replicas go"))
    assert load.cut == trickle.cut == []
    assert trickle.failures == []
    told = installed.api.call("describe", f"qis/{service.name}", f"--namespace={restricted}")
    show(capsys, told[told.index("Status:") :])
    assert service.condition("ScalingActive")["status"] == "True"
    assert "h100 0 -> " in told
    assert "Last Scaling Decision" in told
    assert "the others would have carried" in told


def replicas(service: Service) -> dict[str, int]:
    """What the Deployments ask for, by accelerator."""
    path = f"/apis/apps/v1/namespaces/{service.namespace}/deployments"
    found = service.cluster.api.get(path)["items"]
    names = {one["metadata"]["name"]: one["spec"]["replicas"] for one in found}
    return {name.removeprefix(f"{service.name}-"): count for name, count in names.items()}


def restart_operators(service: Service) -> None:
    """Have new ones, and wait until one of them has decided some times."""
    api = service.cluster.api
    old = uids(pods_of(service.cluster, "operator"))
    api.call("rollout", "restart", "deployment/quire-operator", f"--namespace={SYSTEM}")

    def decided() -> bool:
        now = pods_of(service.cluster, "operator")
        return not old & uids(now) and any(num_decisions(service, pod) >= 3 for pod in now)

    service.wait(decided, "a new operator has decided")


def num_decisions(service: Service, pod: Body) -> float:
    """How often an operator has decided; 0 where it does not answer."""
    place = f"/api/v1/namespaces/{SYSTEM}/pods/{pod['metadata']['name']}:8081/proxy/metrics"
    text = service.cluster.api.get(place) or ""
    found = [line for line in text.splitlines() if line.startswith(f"{_DECIDED} ")]
    return float(found[0].split()[1]) if found else 0.0
