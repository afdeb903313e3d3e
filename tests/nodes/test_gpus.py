"""Engines on the GPUs that their service asks for, and what is said where they cannot be."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.config import Size
from hack.cluster.quire_images import engine_archive
from tests.nodes.conftest import NUM_NODES
from tests.nodes.services import A100, H100, L4, Service, is_ready, node_of, simulated


@pytest.fixture
def engine_image() -> Path:
    return engine_archive()


@pytest.fixture
def more_nodes(cluster: Cluster) -> Iterator[None]:
    """Nodes that the test adds are taken away again."""
    yield
    for node in cluster.real.nodes[NUM_NODES:]:
        cluster.remove_node(node.name)


def test_engines_are_ready_on_the_products_that_are_asked_for(
    cluster: Cluster, service: Service
) -> None:
    service.apply(simulated(A100, count=2, minReplicas=1), simulated(L4, minReplicas=2), replicas=3)
    ready = service.wait_for("Ready", "True")

    assert ready["reason"] == "AllReady"
    assert service.condition("GPUsAvailable")["reason"] == "AllScheduled"
    placed = sorted((node_of(pod), _gpus(cluster, pod)) for pod in service.pods())
    assert placed == [
        ("node-2", ("GPU-node-2-0", "GPU-node-2-1")),
        ("node-3", ("GPU-node-3-0",)),
        ("node-3", ("GPU-node-3-1",)),
    ]
    counts = {one["name"]: one["ready"] for one in service.status()["accelerators"]}
    assert counts == {"a100": 1, "l4": 2}
    service.wait(lambda: service.condition("MetricsFresh")["status"] == "True", "engines are heard")
    service.delete()


def test_one_gpu_too_many_is_said_in_the_schedulers_words_until_a_node_comes(
    cluster: Cluster, service: Service, engine_image: Path, more_nodes: None
) -> None:
    service.apply(simulated(H100), replicas=3)
    said = service.wait_for("GPUsAvailable", "False")
    service.wait(lambda: sum(map(is_ready, service.pods())) == 2, "two are ready")

    assert said["reason"] == "NoGPUNode"
    assert "1 Insufficient nvidia.com/gpu" in said["message"]
    assert f"products: {H100}" in said["message"]
    assert service.condition("Ready")["reason"] == "NoGPUNode"
    assert service.wait_for("Available", "True")
    service.wait(lambda: "NoGPUNode" in service.events(), "there is an event")

    cluster.up(Size.NODES, NUM_NODES + 1)
    cluster.real.node("node-4").load_image(engine_image)
    service.wait_for("Ready", "True")
    assert sorted(map(node_of, service.pods())) == ["node-1", "node-1", "node-4"]
    assert service.condition("GPUsAvailable")["status"] == "True"
    service.delete()


def test_a_bad_image_tells_why(service: Service) -> None:
    service.apply(simulated(L4, pod={"image": "localhost/nowhere:1"}))
    said = service.wait_for("Degraded", "True", "ImagePullFailed")

    assert "localhost/nowhere:1" in said["message"]
    assert service.condition("Ready")["reason"] == "ImagePullFailed"
    service.wait(lambda: "ImagePullFailed" in service.events(), "there is an event")


def test_a_model_that_cannot_be_had_tells_why(service: Service) -> None:
    service.apply(
        {"name": "cpu"},
        model={"source": "hf://acme/thing@main", "maxModelLen": 128},
    )
    said = service.wait_for("Degraded", "True", "EngineFailed")

    assert "cannot ask https://huggingface.co for acme/thing" in said["message"]
    assert '"level"' not in said["message"]
    service.wait(lambda: "EngineFailed" in service.events(), "there is an event")
    # and a better one is taken at once, without waiting for the bad one
    service.apply(simulated(L4))
    service.wait_for("Ready", "True")


def _gpus(cluster: Cluster, pod: dict[str, dict[str, str]]) -> tuple[str, ...]:
    """What the device plugin has told its container."""
    meta = pod["metadata"]
    command = ("exec", meta["name"], f"--namespace={meta['namespace']}", "--", "env")
    lines = cluster.api.call(*command).splitlines()
    (devices,) = [line for line in lines if line.startswith("NVIDIA_VISIBLE_DEVICES=")]
    return tuple(sorted(devices.partition("=")[2].split(",")))
