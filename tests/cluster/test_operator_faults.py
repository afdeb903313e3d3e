"""The operator while the API server, its watches, the CRD and other people do what they do.

Whatever happens, it converges: what is asked for afterwards becomes so, and what was changed while
it could not look is found.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster.cluster import Cluster
from quire_operator.planner.names import MANAGER
from quire_operator.resource.crd import NAME, crd
from tests.api.servers import wait_until
from tests.cluster.faulty_api import FaultyApi, FirstTimes
from tests.cluster.operators import LEASE, SYSTEM, RunningOperator, install, uninstall
from tests.cluster.services import get, make, wait_for_status

FLAGS = ("--engine-image=engine:1", "--log-format=text")
PATIENT = ("--lease-seconds=300",)
"""Its Lease outlasts what a test does to it."""


@pytest.fixture(scope="module")
def api(api_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyApi]:
    install(api_cluster)
    user = f"system:serviceaccount:{SYSTEM}:{MANAGER}"
    server = f"https://127.0.0.1:{api_cluster.config.ports.api}"
    folder = tmp_path_factory.mktemp("faulty")
    with FaultyApi(api_cluster.authority, server, user, folder) as faulty:
        yield faulty
    uninstall(api_cluster)


@pytest.fixture(scope="module")
def place(api_cluster: Cluster) -> Iterator[str]:
    api_cluster.api.call("create", "namespace", "faults")
    yield "faults"
    api_cluster.api.call("delete", "namespace", "faults", "--timeout=120s")


@pytest.fixture
def namespace(api_cluster: Cluster, api: FaultyApi, place: str) -> Iterator[str]:
    """All is as before afterwards: no services, no faults, and a Lease that is free."""
    yield place
    api.be_well()
    api_cluster.api.call("delete", "qis", "--all", f"--namespace={place}", "--timeout=60s")
    api_cluster.api.call("delete", f"lease/{LEASE}", f"--namespace={SYSTEM}", "--ignore-not-found")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "operator.log"


def wait_for_leader(operator: RunningOperator) -> None:
    wait_until(lambda: operator.metric("quire_operator_is_leader") == 1)


def wait_for_replicas(cluster: Cluster, namespace: str, name: str, replicas: int) -> None:
    def is_so() -> bool:
        found = get(cluster, "deployment", namespace, f"{name}-l4")
        return found is not None and found["spec"]["replicas"] == replicas

    wait_until(is_so)


def delete(cluster: Cluster, namespace: str, *names: str) -> None:
    cluster.api.call("delete", *names, f"--namespace={namespace}", "--timeout=60s")


def test_what_happened_while_the_api_server_was_gone_is_found(
    api_cluster: Cluster, api: FaultyApi, log: Path, namespace: str
) -> None:
    with RunningOperator(api.kubeconfig, log, *FLAGS, *PATIENT) as operator:
        wait_for_leader(operator)
        for name in ("kept", "deleted"):
            make(api_cluster, namespace, name)
            wait_for_status(api_cluster, namespace, name)
        api.go_away()
        wait_until(lambda: "ConnectorError" in log.read_text())
        delete(api_cluster, namespace, "deployment/kept-l4", "service/kept", "qis/deleted")
        make(api_cluster, namespace, "kept", replicas=3)
        make(api_cluster, namespace, "new", replicas=4)
        api.come_back()

        wait_for_replicas(api_cluster, namespace, "kept", 3)
        wait_for_replicas(api_cluster, namespace, "new", 4)
        wait_until(lambda: get(api_cluster, "service", namespace, "kept") is not None)
        series = f'quire_operator_service_ready{{name="deleted",namespace="{namespace}",'
        wait_until(lambda: series not in operator.metrics())
        assert operator.process.poll() is None


def test_cut_watches_lose_nothing(
    api_cluster: Cluster, api: FaultyApi, log: Path, namespace: str
) -> None:
    with RunningOperator(api.kubeconfig, log, *FLAGS, *PATIENT) as operator:
        wait_for_leader(operator)
        make(api_cluster, namespace)
        for replicas in (2, 3, 4, 5):
            api.cut()
            make(api_cluster, namespace, replicas=replicas)
            api.cut()
            wait_for_replicas(api_cluster, namespace, "chat", replicas)
        assert operator.process.poll() is None


def test_errors_of_every_kind_delay_it_and_no_more(
    api_cluster: Cluster, api: FaultyApi, log: Path, namespace: str
) -> None:
    api.refuse(FirstTimes())
    with RunningOperator(api.kubeconfig, log, *FLAGS, *PATIENT) as operator:
        wait_for_leader(operator)
        make(api_cluster, namespace, replicas=3)
        wait_for_status(api_cluster, namespace)
        wait_for_replicas(api_cluster, namespace, "chat", 3)
        assert api.num_refused > 30
        assert operator.process.poll() is None


def test_a_leader_that_cannot_renew_ends_and_its_next_start_waits_for_the_api_server(
    api_cluster: Cluster, api: FaultyApi, log: Path, namespace: str
) -> None:
    with RunningOperator(api.kubeconfig, log, *FLAGS, "--lease-seconds=5") as operator:
        wait_for_leader(operator)
        api.go_away()
        assert operator.process.wait(timeout=120) == 1
    assert "ends, to begin as a follower" in log.read_text()
    assert "Traceback" not in log.read_text()

    make(api_cluster, namespace, replicas=3)
    second = log.with_name("second.log")
    later = RunningOperator(api.kubeconfig, second, *FLAGS, "--lease-seconds=5")
    try:
        wait_until(lambda: "waiting for the API server" in second.read_text())
        api.come_back()
        wait_for_replicas(api_cluster, namespace, "chat", 3)
    finally:
        later.kill()


def test_a_crd_that_is_taken_away_and_put_back_begins_a_new_life(
    api_cluster: Cluster, api: FaultyApi, log: Path, namespace: str
) -> None:
    with RunningOperator(api.kubeconfig, log, *FLAGS, "--lease-seconds=5") as operator:
        wait_for_leader(operator)
        make(api_cluster, namespace)
        wait_for_status(api_cluster, namespace)
        api_cluster.api.call("delete", f"crd/{NAME}", "--timeout=60s")
        # its watch has nothing to go on with: it ends, and the kubelet starts it again
        assert operator.process.wait(timeout=120) == 1

    second = log.with_name("second.log")
    later = RunningOperator(api.kubeconfig, second, *FLAGS, "--lease-seconds=5")
    try:
        wait_until(
            lambda: "`kubectl apply --server-side -f manifests/crds`" in second.read_text(),
        )
        api_cluster.api.apply(crd())
        api_cluster.api.wait_established(f"crd/{NAME}")
        make(api_cluster, namespace, replicas=3)
        wait_for_status(api_cluster, namespace)
        wait_for_replicas(api_cluster, namespace, "chat", 3)
    finally:
        later.kill()
