"""Requests that run while a test looks at the page."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx

from tests.api.servers import MODEL, RunningServer, wait_until

Bodies = list[dict[str, Any]]


@contextmanager
def requests_in_flight(server: RunningServer, bodies: Bodies) -> Iterator[None]:
    """Keep these text completions going; their client leaves at the end of the block."""
    leaving = asyncio.Event()
    loop = asyncio.new_event_loop()
    with ThreadPoolExecutor(1) as thread:
        posting = thread.submit(loop.run_until_complete, _post_all(server.url, bodies, leaving))
        try:
            wait_until(lambda: _num_present(server) == len(bodies))
            yield
        finally:
            loop.call_soon_threadsafe(leaving.set)
            posting.result()
            loop.close()
            wait_until(lambda: _num_present(server) == 0)


async def _post_all(url: str, bodies: Bodies, leaving: asyncio.Event) -> None:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=None) as client:
        tasks = [
            asyncio.create_task(client.post("/v1/completions", json={"model": MODEL} | body))
            for body in bodies
        ]
        await leaving.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _num_present(server: RunningServer) -> int:
    sequences = server.state().sequences
    return sequences.running + sequences.waiting
