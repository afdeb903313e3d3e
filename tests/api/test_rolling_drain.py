"""One of two servers behind a load balancer ends under load, and no client notices."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.envoy import Envoy, EnvoyMissingError, find_envoy
from tests.api.events import check_ends_once, parse_events
from tests.api.servers import MODEL, SIMULATED, RunningServer, wait_until_async

FLAGS = (*SIMULATED, "--simulated-step-seconds", "0.02", "--drain-grace-seconds", "10")
"""The balancer has the grace to notice in, however little of the machine it gets."""
NUM_CLIENTS = 16


@pytest.fixture
def pair() -> Iterator[tuple[RunningServer, RunningServer]]:
    with RunningServer(*FLAGS) as first, RunningServer(*FLAGS) as second:
        yield first, second


class Load:
    """Clients that ask one thing after the other, streamed and whole."""

    def __init__(self, url: str, http: httpx.AsyncClient) -> None:
        self._url = url + "/v1/completions"
        self._http = http
        self.num_answers = 0
        self._is_over = False

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Ask while the block runs; afterwards every answer was a whole one."""
        async with asyncio.TaskGroup() as group:
            for number in range(NUM_CLIENTS):
                group.create_task(self._ask_on(number))
            yield
            self._is_over = True

    async def _ask_on(self, number: int) -> None:
        is_stream = number % 2 == 0
        body: dict[str, Any] = {"model": MODEL, "prompt": "Once", "stream": is_stream}
        while not self._is_over:
            # from a moment to seconds, so that some are running whenever a server ends
            num_tokens = 1 + 7 * number
            response = await self._http.post(self._url, json=body | {"max_tokens": num_tokens})
            assert response.status_code == 200, response.text
            if is_stream:
                assert check_ends_once(parse_events(response.text)) == "finish"
            else:
                assert response.json()["usage"]["completion_tokens"] == num_tokens
            self.num_answers += 1


async def test_a_server_that_is_drained_fails_no_request(
    pair: tuple[RunningServer, RunningServer], http: httpx.AsyncClient, tmp_path: Path
) -> None:
    try:
        program = find_envoy()
    except EnvoyMissingError as error:
        pytest.skip(str(error))
    ending, staying = pair
    with Envoy(program, tmp_path, [ending.url, staying.url]) as envoy:
        load = Load(envoy.url, http)
        async with load.going_on():
            await wait_until_async(lambda: ending.state().sequences.running > 2)
            ending.stop()
            status = await asyncio.to_thread(ending.process.wait, 300)
            num_answers = load.num_answers
            await wait_until_async(lambda: load.num_answers > num_answers + NUM_CLIENTS)

    assert status == 0
    await asyncio.to_thread(staying.wait_until_idle)
