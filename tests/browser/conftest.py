"""One browser for each module of tests, and one server for those that leave it as it was."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.api.servers import SIMULATED, RunningServer
from tests.browser.chromium import install_chromium
from tests.browser.pages import LivePage

OpenPage = Callable[..., LivePage]
StartServer = Callable[..., RunningServer]


@pytest.fixture(scope="session")
def chromium_path() -> str:
    return install_chromium()


@pytest.fixture(scope="module")
def browser(chromium_path: str) -> Iterator[Browser]:
    """Of a module and not of the session: Playwright's event loop must end before other tests'."""
    with sync_playwright() as playwright:
        # without a sandbox: Chromium refuses to make one for root
        launched = playwright.chromium.launch(
            executable_path=chromium_path, args=["--no-sandbox", "--disable-gpu"]
        )
        yield launched
        launched.close()


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    """Starts servers that live as long as the test, and longer than its pages."""
    with ExitStack() as servers:
        yield lambda *flags: servers.enter_context(RunningServer(*flags))


@pytest.fixture
def open_page(browser: Browser, start_server: StartServer) -> Iterator[OpenPage]:
    """Opens pages that must be without problems at the end of the test."""
    with ExitStack() as pages:

        def open_one(server: RunningServer, *, status: str = "ok", **options: Any) -> LivePage:
            page = pages.enter_context(LivePage(browser, server.url, **options))
            return page.open(status=status)

        yield open_one


@pytest.fixture(scope="session")
def still_server() -> Iterator[RunningServer]:
    """Steps of 0.4 s: what a test compares stays the same while it looks; 96 blocks, 4 seats."""
    flags = ("--simulated-step-seconds", "0.4", "--max-num-seqs", "4", "--max-num-blocks", "96")
    with RunningServer(*SIMULATED, *flags, "--max-model-len", "512") as running:
        yield running


@pytest.fixture(scope="session")
def real_server() -> Iterator[RunningServer]:
    """The default model, on the CPU."""
    with RunningServer("--max-model-len", "2048", "--max-num-blocks", "512") as running:
        yield running
