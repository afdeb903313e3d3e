"""A real model on CPUs: PyTorch and the model's file come from this machine, by a volume."""

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster.base_image import PYTHON_VERSION
from hack.cluster.cluster import Cluster
from quire_engine.config import EngineConfig
from quire_engine.sources import resolve
from tests.api.servers import wait_until
from tests.nodes.clients import Client
from tests.nodes.services import Body, Service
from tests.nodes.volumes import claimed, provide

NODE = "node-3"
VOLUME = "this-machine"
MODEL, BROKEN = "smollm2.gguf", "broken.gguf"

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != PYTHON_VERSION,
    reason="images have another Python than this machine's environment: its modules do not load",
)


@pytest.fixture
def volume(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[None]:
    """An environment with PyTorch, a model, and a file that is none, for pods on one node."""
    broken = tmp_path / BROKEN
    broken.write_bytes(b"GGUF and then nothing that makes sense")
    model = resolve(EngineConfig().model.source).path
    packages = Path(sysconfig.get_path("purelib"))
    content = {"packages": packages, MODEL: model, BROKEN: broken}
    provide(cluster, NODE, VOLUME, content)
    cluster.api.apply(*claimed(NODE, VOLUME, namespace))
    yield
    cluster.api.call("delete", f"pv/{VOLUME}", "--wait=false")


def accelerator() -> Body:
    """CPUs of the node that has the volume."""
    pod = {
        "env": [
            {"name": "PYTHONPATH", "value": "/models/packages"},
            {"name": "TRITON_CACHE_DIR", "value": "/tmp/triton"},
        ],
        "nodeSelector": {"kubernetes.io/hostname": NODE},
    }
    return {"name": "cpu", "pod": pod}


def model(file: str) -> Body:
    """A file in the volume."""
    return {"source": f"pvc://{VOLUME}/{file}", "name": "smollm2", "maxModelLen": 1024}


def test_it_answers_another_pod_by_the_services_name(
    service: Service, client: Client, volume: None
) -> None:
    service.apply(accelerator(), model=model(BROKEN))
    said = service.wait_for("Degraded", "True", "EngineFailed")
    assert BROKEN in said["message"]

    service.apply(accelerator(), model=model(MODEL))
    service.wait_for("Ready", "True")
    assert service.status()["url"] == service.url
    wait_until(lambda: client.ask(f"{service.url}/models").status == 200)
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    question = {"model": "smollm2", "messages": messages, "temperature": 0, "max_tokens": 32}
    answer = client.ask(f"{service.url}/chat/completions", question)

    assert answer.status == 200, answer.text
    assert "Paris" in answer.json()["choices"][0]["message"]["content"]
    service.delete()
