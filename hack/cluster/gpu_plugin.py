"""A device plugin that tells kubelets of GPUs which are not there, one process for all nodes.

`python -m hack.cluster.gpu_plugin FOLDER`, where FOLDER/NAME/var/kubelet is the folder of node
NAME's kubelet; nodes may come later. Devices named in FOLDER/unhealthy.json, by node, are reported
as such.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
from google.protobuf.message import Message

from hack.cluster.device_plugin_api import PLUGIN_SERVICE, REGISTER, VERSION, messages
from hack.cluster.gpu_nodes import GPUS_PER_NODE, RESOURCE

Messages = AsyncIterator[Message]

_SOCKET = "quire-gpu.sock"
_LOOK_SECONDS = 0.25
_CALL_SECONDS = 10.0


def device_ids(node: str) -> list[str]:
    """Names of a node's GPUs."""
    return [f"GPU-{node}-{number}" for number in range(GPUS_PER_NODE)]


class GpuPlugin:
    """The GPUs of one node.

    Parameters
    ----------
    name
        The node's. Sockets are named from the working folder on: their full paths may be longer
        than the kernel allows for.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._folder = Path(name) / "var" / "kubelet" / "device-plugins"
        self._server: grpc.aio.Server | None = None

    async def serve(self) -> None:
        """Register with the kubelet, and again whenever it was started anew."""
        registered_with = None
        try:
            while True:
                kubelet = _identity(self._folder / "kubelet.sock")
                if kubelet is not None and kubelet != registered_with:
                    with contextlib.suppress(grpc.aio.AioRpcError):
                        await self._register()
                        registered_with = kubelet
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            await self._stop()

    async def _register(self) -> None:
        """Open the socket, which a kubelet removes when it starts, and tell the kubelet of it."""
        await self._stop()
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((self._handlers(),))
        self._server.add_insecure_port(f"unix:{self._folder / _SOCKET}")
        await self._server.start()
        request = messages["RegisterRequest"](
            version=VERSION, endpoint=_SOCKET, resource_name=RESOURCE
        )
        async with grpc.aio.insecure_channel(f"unix:{self._folder / 'kubelet.sock'}") as channel:
            register = channel.unary_unary(
                REGISTER,
                request_serializer=_to_bytes,
                response_deserializer=messages["Empty"].FromString,
            )
            await register(request, timeout=_CALL_SECONDS)
        print(f"{self.name}: registered", flush=True)

    async def _stop(self) -> None:
        if self._server is not None:
            await self._server.stop(grace=None)

    def _handlers(self) -> grpc.GenericRpcHandler:
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        table = {
            "GetDevicePluginOptions": (unary, self._options, "Empty"),
            "ListAndWatch": (stream, self._list_and_watch, "Empty"),
            "Allocate": (unary, self._allocate, "AllocateRequest"),
        }
        handlers = {
            method: make(
                function,
                request_deserializer=messages[request].FromString,
                response_serializer=_to_bytes,
            )
            for method, (make, function, request) in table.items()
        }
        return grpc.method_handlers_generic_handler(PLUGIN_SERVICE, handlers)

    async def _options(self, _request: Message, _context: grpc.aio.ServicerContext) -> Message:
        return messages["DevicePluginOptions"]()

    async def _list_and_watch(
        self, _request: Message, _context: grpc.aio.ServicerContext
    ) -> Messages:
        """Send the devices at once, and again when their health changes."""
        told = None
        while True:
            devices = [
                messages["Device"](
                    ID=device,
                    health="Unhealthy" if device in _unhealthy(self.name) else "Healthy",
                )
                for device in device_ids(self.name)
            ]
            if devices != told:
                told = devices
                yield messages["ListAndWatchResponse"](devices=devices)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _allocate(self, request: Message, _context: grpc.aio.ServicerContext) -> Message:
        """Tell the container which devices it has, as NVIDIA's plugin does."""
        entry, container = messages["EnvironmentEntry"], messages["ContainerAllocateResponse"]
        answers = []
        for one in request.container_requests:
            visible = entry(key="NVIDIA_VISIBLE_DEVICES", value=",".join(one.devices_ids))
            answers.append(container(envs=[visible]))
        return messages["AllocateResponse"](container_responses=answers)


def _to_bytes(message: Message) -> bytes:
    return bytes(message.SerializeToString())


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a socket from one of the same name before it; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


def _unhealthy(node: str) -> list[str]:
    with contextlib.suppress(OSError, ValueError):
        found: dict[str, list[str]] = json.loads(Path("unhealthy.json").read_text())
        return found.get(node, [])
    return []


def _nodes() -> set[str]:
    """Names of the nodes that have a folder."""
    return {path.parent.parent.name for path in Path().glob("*/var/kubelet")}


async def _serve_all() -> None:
    """Serve the nodes that have a folder, and those that get one."""
    names: set[str] = set()
    async with asyncio.TaskGroup() as group:
        while True:
            found = _nodes()
            for name in found - names:
                group.create_task(GpuPlugin(name).serve())
            names |= found
            await asyncio.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    Path("/proc/self/comm").write_text("gpu-plugin")
    asyncio.run(_serve_all())
