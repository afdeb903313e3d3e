"""A copy of objects of an API server that does what real ones seldom do, when nobody looks."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio import client

from quire_gateway.routing.reflector import Reflector
from tests.api.servers import wait_until_async

Script = Callable[[web.Request], Awaitable[web.StreamResponse]]


def body(name: str, version: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "n", "name": name, "resourceVersion": version}}


def event(kind: str, of: dict[str, Any]) -> str:
    return json.dumps({"type": kind, "object": of}) + "\n"


def gone() -> str:
    return event("ERROR", {"kind": "Status", "code": 410, "message": "too old"})


class ScriptedApi:
    """Answers lists and watches one after the other as it was told; then it hangs."""

    def __init__(self) -> None:
        self.lists: list[tuple[list[str], str, str]] = []
        """Names, their version, and what the next page is asked for by; without any it refuses."""
        self.watches: list[list[str]] = []
        """Lines of each watch, which then ends."""
        self.asked: list[tuple[str, str | None]] = []
        """What was asked for, and from which version or page."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        query = request.query
        assert query["labelSelector"] == "a=b"
        if "watch" not in query:
            self.asked.append(("list", query.get("continue")))
            return self._list()
        self.asked.append(("watch", query["resourceVersion"]))
        assert query["allowWatchBookmarks"].lower() == "true"
        response = web.StreamResponse()
        await response.prepare(request)
        if not self.watches:
            await asyncio.sleep(3600)
        for line in self.watches.pop(0):
            await response.write(line.encode())
        return response

    def _list(self) -> web.Response:
        if not self.lists:
            return web.json_response({"message": "no"}, status=403)
        names, version, more = self.lists.pop(0)
        items = [body(name, version) for name in names]
        metadata = {"resourceVersion": version, "continue": more}
        return web.json_response({"metadata": metadata, "items": items})


@contextlib.asynccontextmanager
async def reflecting(api: ScriptedApi) -> AsyncIterator[Reflector]:
    """A reflector that follows it, in as little time as can be."""
    server = web.Application()
    server.router.add_get("/{path:.*}", api.answer)
    runner = web.AppRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    settings = client.Configuration()
    settings.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    api_client = client.ApiClient(configuration=settings)
    call: Any = client.CoreV1Api(
        api_client
    ).list_config_map_for_all_namespaces_without_preload_content
    made = Reflector("things", call, "a=b", on_change=lambda: None, chance=lambda: 0.0)
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await api_client.close()  # type: ignore[no-untyped-call]
        await runner.cleanup()


def names(reflector: Reflector) -> set[str]:
    return {name for _, name in reflector.objects}


async def test_pages_are_put_together_and_watches_go_on_from_the_last_version() -> None:
    api = ScriptedApi()
    api.lists = [(["a"], "5", "more"), (["b"], "5", "")]
    api.watches = [
        [event("ADDED", body("c", "6")), event("DELETED", body("a", "7"))],
        [event("BOOKMARK", {"metadata": {"resourceVersion": "90"}})],
    ]
    async with reflecting(api) as reflector:
        await wait_until_async(lambda: api.asked[-1:] == [("watch", "90")])
        assert names(reflector) == {"b", "c"}
        assert not reflector.problem
    assert api.asked == [
        ("list", None),
        ("list", "more"),
        ("watch", "5"),
        ("watch", "7"),
        ("watch", "90"),
    ]


async def test_an_object_may_be_as_large_as_the_api_server_allows() -> None:
    api = ScriptedApi()
    large = body("large", "6") | {"data": {"document": "x" * 1_000_000}}
    api.lists = [(["a"], "5", "")]
    api.watches = [[event("ADDED", large), event("ADDED", body("c", "7"))]]
    async with reflecting(api) as reflector:
        await wait_until_async(lambda: api.asked[-1:] == [("watch", "7")])
        assert reflector.objects["n", "large"] == large
        assert names(reflector) == {"a", "large", "c"}
    assert [kind for kind, _ in api.asked] == ["list", "watch", "watch"]


async def test_a_version_that_is_too_old_means_a_new_list_and_is_no_problem() -> None:
    api = ScriptedApi()
    api.lists = [(["a"], "5", ""), (["b"], "9", "")]
    api.watches = [[gone()]]
    async with reflecting(api) as reflector:
        await wait_until_async(lambda: api.asked[-1:] == [("watch", "9")])
        assert names(reflector) == {"b"}  # what was deleted meanwhile is gone
        assert not reflector.problem


@pytest.mark.parametrize(
    "line",
    ["no JSON\n", "{}\n", "[]\n", '"text"\n', event("ADDED", {}), event("ERROR", {"code": 500})],
)
async def test_what_cannot_be_read_leaves_the_copy_as_it_was_until_a_new_list(line: str) -> None:
    api = ScriptedApi()
    api.lists = [(["a"], "5", "")]
    api.watches = [[line]]
    async with reflecting(api) as reflector:
        await wait_until_async(lambda: "403" in reflector.problem)
        assert names(reflector) == {"a"}
        api.lists = [(["b"], "9", "")]
        await wait_until_async(lambda: api.asked[-1:] == [("watch", "9")])
        await wait_until_async(lambda: not reflector.problem)
        assert names(reflector) == {"b"}
