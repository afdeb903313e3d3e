"""`GET /state/live`, and the page that reads it."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import httpx
import msgspec
import pytest

import quire_engine.server
from quire_engine.protocol.block_map import CACHED, FREE, PROMISED_CACHED, PROMISED_FREE
from quire_engine.protocol.live_state import LiveState
from tests.api.servers import MODEL, SIMULATED, RunningServer

COMPLETIONS = "/v1/completions"
_PAGE = Path(quire_engine.server.__path__[0]) / "page"
_UNHELD = (FREE, CACHED, PROMISED_FREE, PROMISED_CACHED)


async def follow(server: RunningServer, http: httpx.AsyncClient) -> AsyncGenerator[LiveState, None]:
    """Every live state that is pushed."""
    async with http.stream("GET", server.url + "/state/live") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        name = ""
        async for line in response.aiter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: ") and name == "live":
                yield msgspec.json.decode(line.removeprefix("data: "), type=LiveState)


async def test_running_requests_and_their_blocks_are_shown(http: httpx.AsyncClient) -> None:
    flags = ("--simulated-step-seconds", "0.02", "--max-num-blocks", "200", "--max-num-seqs", "3")
    with RunningServer(*SIMULATED, *flags, "--max-model-len", "1024") as server:
        body = {"model": MODEL, "prompt": "Once", "max_tokens": 400}
        url = server.url + COMPLETIONS
        requests = [asyncio.create_task(http.post(url, json=body)) for _ in range(5)]
        async with aclosing(follow(server, http)) as stream:
            async for live in stream:
                view = live.view
                if view is not None and view.num_running == 3 and view.num_waiting == 2:
                    break
        for request in requests:
            request.cancel()

    assert live.status == "ok"
    assert view is not None
    assert view.executor == "simulated h100"
    assert view.map.num_cells == view.blocks.total == 200
    runs = zip(view.map.runs[::2], view.map.runs[1::2], strict=True)
    held = sum(length for code, length in runs if code not in _UNHELD)
    assert held == view.blocks.held > 0
    running, waiting = view.requests[:3], view.requests[3:]
    assert {request.phase for request in waiting} == {"waiting"}
    assert all(request.num_blocks > 0 for request in running)
    assert all(request.id.startswith("cmpl-") for request in view.requests)


async def test_clients_find_their_request_by_the_id_of_its_answer(
    slow_server: RunningServer, http: httpx.AsyncClient
) -> None:
    body = {"model": MODEL, "prompt": "Once", "max_tokens": 100, "stream": True}
    url = slow_server.url + COMPLETIONS
    async with http.stream("POST", url, json=body) as answer:
        lines = answer.aiter_lines()  # kept: when it is collected, the answer is closed
        line = await anext(lines)
        answer_id = msgspec.json.decode(line.removeprefix("data: "))["id"]
        async with aclosing(follow(slow_server, http)) as stream:
            async for live in stream:
                shown = live.view.requests if live.view else []
                if shown:
                    break
    assert [request.id for request in shown] == [answer_id]
    slow_server.wait_until_idle()


async def test_a_core_that_is_started_again_is_watched_too(http: httpx.AsyncClient) -> None:
    with RunningServer(*SIMULATED) as server:
        seen: list[tuple[str, bool]] = []
        async with aclosing(follow(server, http)) as stream:
            async for live in stream:
                if live.view is not None and ("ok", True) not in seen:
                    os.kill(server.core_pid(), signal.SIGKILL)
                seen.append((live.status, live.view is not None))
                if ("restarting", False) in seen and seen[-1] == ("ok", True):
                    break
    assert live.state.num_core_restarts == 1


def test_the_page_and_all_its_files_are_served_with_a_strict_policy(server: RunningServer) -> None:
    names = ["", *(f"page/{file.name}" for file in _PAGE.iterdir() if file.name != "index.html")]
    assert len(names) > 10
    for name in names:
        response = server.get(f"/{name}")
        assert response.status_code == 200, name
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"
    assert server.get("/").headers["content-type"].startswith("text/html")


@pytest.mark.parametrize(
    "path", ["/page/none.js", "/page/index.html", "/page/..%2fapp.py", "/page/__init__.py"]
)
def test_no_other_file_is_served(server: RunningServer, path: str) -> None:
    response = server.get(path)
    assert response.status_code == 404
    assert "message" in response.json()["error"]


def test_a_file_that_the_browser_has_is_not_sent_again(server: RunningServer) -> None:
    url = server.url + "/page/app.js"
    first = httpx.get(url, timeout=60)
    again = httpx.get(url, headers={"if-none-match": first.headers["etag"]}, timeout=60)

    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]


def test_the_page_names_no_other_host_and_no_inline_code() -> None:
    for file in _PAGE.iterdir():
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//[a-z]+\.", text), file.name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|eval\(|document\.write", text)
        assert file.suffix != ".html" or not re.search(r"\son\w+=|style=|<script>|<style>", text)


@pytest.mark.parametrize("file", sorted(_PAGE.glob("*.js")), ids=lambda file: str(file.name))
def test_scripts_are_short(file: Path) -> None:
    lines = file.read_text().splitlines()
    assert len(lines) <= 300
    assert all(len(line) <= 100 for line in lines)


async def test_when_the_last_has_left_the_view_is_gone(
    server: RunningServer, http: httpx.AsyncClient
) -> None:
    async with aclosing(follow(server, http)) as stream, aclosing(follow(server, http)) as other:
        await anext(other)
        while (await anext(stream)).view is None:
            pass

    async def is_gone() -> bool:
        async with aclosing(follow(server, http)) as stream:
            return (await anext(stream)).view is None

    async with asyncio.timeout(15):
        while not await is_gone():
            pass
