"""Carries connections from the machine's loopback address into a cluster's network.

Runs inside the control plane's namespaces with sockets that were opened outside: they go on
listening there, and what this process connects to is inside. So the machine gets no interface and
no route. `python -m hack.cluster.door FD=ADDRESS:PORT ...`
"""

import asyncio
import contextlib
import socket
import sys
from pathlib import Path

_CHUNK_BYTES = 1 << 16


async def carry(listening: socket.socket, host: str, port: int) -> None:
    """Accept connections for ever, and open one inside for each."""

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))
        for end in (writer, inner_writer):
            end.close()

    server = await asyncio.start_server(on_connection, sock=listening)
    async with server:
        await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the sender ends, and tell the receiver so; one that is gone ends it, too."""
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    with contextlib.suppress(OSError):
        if writer.can_write_eof():
            writer.write_eof()


async def _carry_all(arguments: list[str]) -> None:
    async with asyncio.TaskGroup() as group:
        for argument in arguments:
            number, _, target = argument.partition("=")
            host, _, port = target.rpartition(":")
            group.create_task(carry(socket.socket(fileno=int(number)), host, int(port)))


if __name__ == "__main__":
    Path("/proc/self/comm").write_text("door")
    asyncio.run(_carry_all(sys.argv[1:]))
