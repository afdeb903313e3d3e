"""The fake GPUs' side of the device plugin API, spoken to as a kubelet does."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from hack.cluster.device_plugin_api import PLUGIN_SERVICE, messages
from hack.cluster.gpu_nodes import RESOURCE
from hack.cluster.gpu_plugin import GpuPlugin, device_ids

_WAIT_SECONDS = 60
_NODE = "node-1"


class Kubelet:
    """Takes registrations on its socket, and calls plugins."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.relative_to(Path.cwd())
        self.registrations: asyncio.Queue[Any] = asyncio.Queue()
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Open the socket, anew if there was one; what plugins had in the folder is removed."""
        await self.stop()
        for path in self._folder.iterdir():
            path.unlink()
        self._server = grpc.aio.server()
        handler = grpc.unary_unary_rpc_method_handler(
            self._register,
            request_deserializer=messages["RegisterRequest"].FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
        service = grpc.method_handlers_generic_handler(
            "v1beta1.Registration", {"Register": handler}
        )
        self._server.add_generic_rpc_handlers((service,))
        self._server.add_insecure_port(f"unix:{self._folder / 'kubelet.sock'}")
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(grace=None)

    async def registered(self) -> Any:
        """The next registration."""
        return await asyncio.wait_for(self.registrations.get(), _WAIT_SECONDS)

    def call(self, channel: grpc.aio.Channel, method: str, answer: str, *, stream: bool) -> Any:
        """A method of the plugin."""
        kind = channel.unary_stream if stream else channel.unary_unary
        return kind(
            f"/{PLUGIN_SERVICE}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=messages[answer].FromString,
        )

    def channel(self, endpoint: str) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(f"unix:{self._folder / endpoint}")

    async def _register(self, request: Any, context: Any) -> Any:
        self.registrations.put_nowait(request)
        return messages["Empty"]()


@pytest.fixture
async def kubelet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Kubelet]:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / _NODE / "var" / "kubelet" / "device-plugins"
    folder.mkdir(parents=True)
    kubelet = Kubelet(folder)
    serving = asyncio.create_task(GpuPlugin(_NODE).serve())
    yield kubelet
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    await kubelet.stop()


async def test_gpus_are_registered_listed_and_given_out(kubelet: Kubelet) -> None:
    await kubelet.start()
    request = await kubelet.registered()
    assert (request.version, request.resource_name) == ("v1beta1", RESOURCE)
    async with kubelet.channel(request.endpoint) as channel:
        watch = kubelet.call(channel, "ListAndWatch", "ListAndWatchResponse", stream=True)
        devices = watch(messages["Empty"]())
        assert await _health(devices) == dict.fromkeys(device_ids(_NODE), "Healthy")
        allocate = kubelet.call(channel, "Allocate", "AllocateResponse", stream=False)
        wanted = messages["ContainerAllocateRequest"](devices_ids=device_ids(_NODE))
        answer = await allocate(messages["AllocateRequest"](container_requests=[wanted]))
        (entry,) = answer.container_responses[0].envs
        assert entry.key == "NVIDIA_VISIBLE_DEVICES"
        assert entry.value == ",".join(device_ids(_NODE))
        devices.cancel()


async def test_a_change_of_health_is_told(kubelet: Kubelet) -> None:
    await kubelet.start()
    request = await kubelet.registered()
    async with kubelet.channel(request.endpoint) as channel:
        watch = kubelet.call(channel, "ListAndWatch", "ListAndWatchResponse", stream=True)
        devices = watch(messages["Empty"]())
        await _health(devices)
        broken, *others = device_ids(_NODE)
        _write_unhealthy({_NODE: [broken], "node-2": others})
        assert await _health(devices) == {broken: "Unhealthy"} | dict.fromkeys(others, "Healthy")
        devices.cancel()


async def test_a_kubelet_that_was_started_anew_is_told_again(kubelet: Kubelet) -> None:
    await kubelet.start()
    await kubelet.registered()
    await kubelet.start()
    request = await kubelet.registered()
    async with kubelet.channel(request.endpoint) as channel:
        options = kubelet.call(
            channel, "GetDevicePluginOptions", "DevicePluginOptions", stream=False
        )
        assert await options(messages["Empty"]()) == messages["DevicePluginOptions"]()


def _write_unhealthy(devices: dict[str, list[str]]) -> None:
    Path("unhealthy.json").write_text(json.dumps(devices))


async def _health(devices: Any) -> dict[str, str]:
    answer = await asyncio.wait_for(devices.read(), _WAIT_SECONDS)
    return {device.ID: device.health for device in answer.devices}
