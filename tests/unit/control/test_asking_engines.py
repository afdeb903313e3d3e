"""What the operator hears from engines that answer, and why it hears nothing from others."""

import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest
from aiohttp import web

from quire_operator.planner.engine_flags import thresholds
from quire_operator.planner.observed import Pod
from quire_operator.reconciling.engines import Engines
from tests.unit.control.builders import L4, NOW, service
from tests.unit.control.plans import state_of

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
SERVICE = service(L4)
POD = Pod(
    name="chat-l4-1",
    accelerator="l4",
    template_hash="a",
    created_at=NOW,
    is_scheduled=True,
    address="127.0.0.1",
)


class Engine:
    """A server at an engine's port, which answers as it is told."""

    def __init__(self) -> None:
        self.answer: Answer = _state
        self.connections: set[int] = set()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.connections.add(id(request.transport))
        return await self.answer(request)


@pytest.fixture
async def engine(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engine]:
    made = Engine()
    runner = web.ServerRunner(web.Server(made), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    monkeypatch.setattr("quire_operator.reconciling.engines.ENGINE_PORT", port)
    yield made
    await runner.cleanup()


@pytest.fixture
async def engines() -> AsyncIterator[Engines]:
    made = Engines(
        root_secret=lambda: b"s" * 32, token_epoch=0, poll_seconds=15.0, clock=lambda: 0.0
    )
    yield made
    await made.close()


def _state_bytes(**more: Any) -> bytes:
    state = state_of(10, thresholds=msgspec.to_builtins(thresholds(SERVICE)), **more)
    return msgspec.json.encode(state)


async def _state(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response(body=_state_bytes())


async def _forbidden(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response(status=401)


async def _text(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response(text="[]")


async def _endless(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" " * 65536)


async def _bomb(_: web.BaseRequest) -> web.StreamResponse:
    packed = gzip.compress(b" " * 50_000_000)
    return web.Response(body=packed, headers={"content-encoding": "gzip"})


async def _huge_numbers(_: web.BaseRequest) -> web.StreamResponse:
    blocks = {"total": 1, "held": 10**400, "free": 0, "cached": 0, "reserved": -5, "queued": 0}
    return web.Response(body=_state_bytes(blocks=blocks))


async def test_a_state_is_heard_over_one_connection(engine: Engine, engines: Engines) -> None:
    news = [await engines.ask(SERVICE, (POD,)) for _ in range(3)]

    assert news == [True, False, False]
    assert engines.heard(SERVICE, (POD,))[POD.name].num_held == 10
    assert engines.unheard(SERVICE, (POD,)) == {}
    assert len(engine.connections) == 1
    assert (last := engines.last(SERVICE)) is not None
    assert (last.num_blocks, last.tokens_per_block, last.slots) == (1000, 16, 8)
    engines.keep_only(set(), set())
    assert engines.last(SERVICE) is None


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (_forbidden, "it answers 401 to the internal token"),
        (_text, "its answer is no state of an engine"),
        (_endless, "its answer is larger than 524288 bytes"),
        (_bomb, "its answer is no state of an engine"),
    ],
)
async def test_why_nothing_is_heard(
    engine: Engine, engines: Engines, answer: Answer, why: str
) -> None:
    engine.answer = answer
    assert await engines.ask(SERVICE, (POD,))
    assert not await engines.ask(SERVICE, (POD,))  # that is no news the second time

    assert engines.unheard(SERVICE, (POD,)) == {POD.name: why}
    assert engines.heard(SERVICE, (POD,)) == {}
    engine.answer = _state
    await engines.ask(SERVICE, (POD,))
    assert engines.unheard(SERVICE, (POD,)) == {}


async def test_nobody_there_is_said(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire_operator.reconciling.engines.ENGINE_PORT", 1)
    await engines.ask(SERVICE, (POD,))
    assert "refused" in engines.unheard(SERVICE, (POD,))[POD.name]


async def test_figures_that_no_engine_has_are_bounded(engine: Engine, engines: Engines) -> None:
    engine.answer = _huge_numbers
    await engines.ask(SERVICE, (POD,))
    heard = engines.heard(SERVICE, (POD,))[POD.name]
    assert (heard.num_held, heard.num_reserved) == (1 << 40, 0)
