"""What a platform engineer does: installs the chart, applies samples, upgrades, takes it out again.

    OpenAI's client ── Envoy (host) ── gateway x 2 ── engines, of samples as they are in manifests/

The chart has its defaults, in a namespace that takes only restricted pods.
"""

import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster.base_image import PYTHON_VERSION
from hack.cluster.cluster import Cluster
from hack.cluster.processes import require
from hack.cluster.quire_images import ENGINE, GATEWAY, OPERATOR
from quire_engine.config import EngineConfig
from quire_engine.sources import resolve
from quire_operator.resource.crd import NAME
from tests.cluster.helm import Helm
from tests.cluster.operators import SYSTEM
from tests.nodes.installing import HOST, PUBLIC, WAIT, apply_mixed, make_namespace, remove_kind
from tests.nodes.outside import streamed, way_in
from tests.nodes.samples import sample
from tests.nodes.seen import image_of, pods_of, show, uids
from tests.nodes.services import Body, Service
from tests.nodes.streams import Load
from tests.nodes.times import Times
from tests.nodes.volumes import claimed, provide

NODE, VOLUME = "node-3", "models"
NEXT = "next"
QUESTION: Body = {
    "model": "llama3-8b",
    "messages": [{"role": "user", "content": "Once upon a time"}],
    "max_tokens": 40,
}


@pytest.fixture(scope="module")
def installed(bare_cluster: Cluster, helm: Helm, times: Times) -> Iterator[Cluster]:
    """With the chart; afterwards nothing of it is left."""
    make_namespace(bare_cluster, SYSTEM)
    with times.of("helm install --wait"):
        helm.install(*WAIT)
    yield bare_cluster
    helm.uninstall()
    remove_kind(bare_cluster)
    bare_cluster.api.call("delete", "namespace", SYSTEM, "--timeout=110s")


def test_helms_own_test_passes(installed: Cluster, helm: Helm) -> None:
    said = helm.call("test", "quire", f"--namespace={SYSTEM}", "--timeout=110s")
    assert "Phase:          Succeeded" in said


def test_the_sample_of_mixed_gpus_answers_by_its_hosts_name(
    installed: Cluster, restricted: str, times: Times
) -> None:
    with times.of("kubectl apply of mixed-gpus, until it is ready"):
        service = apply_mixed(installed, restricted)
    with times.of("its first streamed answer through Envoy"):
        assert streamed(installed, HOST, "llama3-8b")
    assert streamed(installed, HOST, "chat-default")  # its alias
    assert service.condition("ScalingActive")["reason"] == "Active"


@pytest.mark.skipif(
    sys.version_info[:2] != PYTHON_VERSION,
    reason="images have another Python than this machine's environment: its modules do not load",
)
def test_the_sample_for_cpus_answers_by_its_hosts_name(
    installed: Cluster,
    restricted: str,
    times: Times,
    tmp_path: Path,
) -> None:
    provide(installed, NODE, VOLUME, downloaded(tmp_path))
    installed.api.apply(*claimed(NODE, VOLUME, restricted))
    # the image is without PyTorch, and nodes have no network: both are in the cache's volume
    pod = {
        "env": [
            {"name": "PYTHONPATH", "value": "/cache/packages"},
            {"name": "TRITON_CACHE_DIR", "value": "/tmp/triton"},
        ],
        "nodeSelector": {"kubernetes.io/hostname": NODE},
        "resources": {"requests": {"cpu": "200m"}},
    }
    more = {"model": {"cache": {"pvc": VOLUME}}, "accelerators": [{"name": "cpu", "pod": pod}]}
    with times.of("kubectl apply of smollm2-cpu, until it is ready"):
        installed.api.apply(*sample("smollm2-cpu", restricted, **more, **PUBLIC))
        Service(installed, restricted, "smollm2").wait_for("Ready", "True")
    question = "What is the capital of France?"
    with times.of("its first streamed answer through Envoy (SmolLM2)"):
        assert "Paris" in streamed(installed, HOST, "smollm2", question)
    installed.api.call("delete", f"pv/{VOLUME}", "--wait=false")


def test_an_upgrade_under_load_loses_no_request_and_restarts_no_engine(
    installed: Cluster, helm: Helm, restricted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    service = apply_mixed(installed, restricted)
    streamed(installed, HOST, "llama3-8b")
    engines = uids(service.pods())
    roles = ("operator", "gateway")

    def seen() -> set[str]:
        return {uid for role in roles for uid in uids(pods_of(installed, role))}

    old = seen()
    tag_images(installed)
    tags = [f"--set={one}.image.tag={NEXT}" for one in (*roles, "engine")]

    with Load(way_in(installed, HOST), QUESTION) as load:
        helm.install(*WAIT, *tags)
        service.wait(lambda: not old & seen(), "old operators and gateways are gone")
        load.wait_for_more()

    show(capsys, load.table("the chart is upgraded"))
    assert load.failures == []
    assert uids(service.pods()) == engines
    assert {image_of(pod) for pod in pods_of(installed, "gateway")} == {tagged(GATEWAY)}
    helm.install(*WAIT)  # and back, for other tests


def test_uninstalled_and_installed_again_it_finds_its_engines(
    installed: Cluster, helm: Helm, restricted: str
) -> None:
    service = apply_mixed(installed, restricted)
    streamed(installed, HOST, "llama3-8b")
    engines = uids(service.pods())

    said = helm.uninstall()
    assert "kept due to the resource policy" in said
    assert NAME in said
    assert uids(service.pods()) == engines
    service.wait(lambda: not pods_of(installed, "gateway"), "the gateways are gone")

    helm.install(*WAIT)
    streamed(installed, HOST, "llama3-8b")
    service.wait_for("Ready", "True")
    assert uids(service.pods()) == engines


def test_services_are_reached_by_a_gateway_of_the_gateway_api(
    installed: Cluster, helm: Helm, restricted: str
) -> None:
    service = apply_mixed(installed, restricted)
    streamed(installed, HOST, "llama3-8b")
    where = {"enabled": "true", "gatewayNamespace": "projectcontour", "gatewayName": "contour"}

    helm.install(*WAIT, *(f"--set=gatewayAPI.{key}={value}" for key, value in where.items()))

    def attached() -> bool:
        path = "/apis/gateway.networking.k8s.io/v1/namespaces"
        route = installed.api.get(f"{path}/{restricted}/httproutes/{service.name}") or {}
        said = [
            (one["type"], one["status"])
            for parent in route.get("status", {}).get("parents", [])
            for one in parent["conditions"]
        ]
        return ("Accepted", "True") in said

    service.wait(attached, "the Gateway has accepted the route")
    ingresses = f"/apis/networking.k8s.io/v1/namespaces/{restricted}/ingresses"
    service.wait(lambda: not installed.api.get(ingresses)["items"], "the Ingress is gone")
    assert streamed(installed, HOST, "llama3-8b")
    service.delete()
    assert (
        installed.api.run("get", "httproutes", f"--namespace={restricted}", "-oname").stdout == ""
    )
    helm.install(*WAIT)


def downloaded(folder: Path) -> dict[str, Path]:
    """A cache with the sample's model, as an engine would have filled it, and this PyTorch."""
    model = resolve(EngineConfig().model.source).path
    (known,) = (one for one in model.parents if one.name == "models")
    shutil.copytree(known / "pypi", folder / "models/pypi")
    for path in (folder / "models").rglob("*"):
        path.chmod(0o777 if path.is_dir() else 0o666)  # engines have another user
    (folder / "models").chmod(0o777)
    return {"packages": Path(sysconfig.get_path("purelib")), "models": folder / "models"}


def tagged(image: str) -> str:
    """The name of the next version's image."""
    return f"{image.rpartition(':')[0]}:{NEXT}"


def tag_images(cluster: Cluster) -> None:
    """Let nodes have images of the next version: the same ones."""
    for node in cluster.real.nodes:
        for image in (OPERATOR, GATEWAY, ENGINE):
            command = ("--namespace=k8s.io", "images", "tag", "--force", image, tagged(image))
            ran = node.namespaces.run(require("ctr"), *command)
            assert ran.returncode == 0, ran.stderr
