"""A network between gateway and engines that loses, delays and cuts, in a process's own hands.

The kernel's own (netem) is not everywhere; what a connection's ends see of a loss, a late piece or
a reset, they see here, too.
"""

import asyncio
import random
import threading
from contextlib import suppress
from typing import Self

_MAX_PIECE = 700
_RESET_SHARE = 0.5
_SECONDS = (0.0, 0.0, 0.002, 0.04)


class LossyNetwork:
    """Proxies on an event loop of their own; each is in front of one engine.

    Every piece is cut into smaller ones that come late, in order, as after a loss. Where there are
    resets, half of the connections over which requests go are reset: at once, or where the
    request is through and nothing has come of it yet.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._servers: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self.num_resets = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    def address_of(self, address: str, *, resets: bool) -> str:
        """Return where an engine is reached through this network, with resets or without."""
        work = self._open(address, reset_share=_RESET_SHARE if resets else 0.0)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _open(self, address: str, *, reset_share: float) -> str:
        host, port = address.split(":")

        async def serve(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
            self._writers.add(back)
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                is_doomed = self._random.random() < reset_share
                await self._pass(near, back, (host, int(port)), is_doomed=is_doomed)
            back.close()
            self._writers.discard(back)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self._servers.append(server)
        return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _pass(
        self,
        near: asyncio.StreamReader,
        back: asyncio.StreamWriter,
        place: tuple[str, int],
        *,
        is_doomed: bool,
    ) -> None:
        begin = await near.read(1 << 16)
        is_doomed = is_doomed and not begin.startswith(b"GET ")
        if is_doomed and self._random.random() < 0.5:
            self._reset(back)
            return
        far, there = await asyncio.open_connection(*place)
        self._writers.add(there)
        try:
            there.write(begin)
            if is_doomed:
                self._reset(back)
                return
            async with asyncio.TaskGroup() as group:
                group.create_task(self._carry(near, there))
                group.create_task(self._carry(far, back))
        except* ConnectionError:
            pass
        finally:
            there.close()
            self._writers.discard(there)

    def _reset(self, writer: asyncio.StreamWriter) -> None:
        self.num_resets += 1
        writer.transport.abort()

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            for start in range(0, len(data), _MAX_PIECE):
                await asyncio.sleep(self._random.choice(_SECONDS))
                target.write(data[start : start + _MAX_PIECE])
                await target.drain()
        if target.can_write_eof():
            target.write_eof()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0.1)  # until the transports have told that they are closed
