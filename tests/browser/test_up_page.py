"""The page of `quire up` in a real browser: services, engines with their blocks, and events."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, expect

from tests.api.servers import wait_until
from tests.api.ups import RunningUp, resource
from tests.browser.pages import LivePage

pytestmark = pytest.mark.browser

SLOW: dict[str, Any] = {
    "engine": {"drainSeconds": 2, "extraArgs": ["--simulated-step-seconds=0.3"]}
}
NO_GPU: dict[str, Any] = {
    "model": {"source": "hf://Qwen/Qwen3-0.6B@main"},
    "accelerators": [{"name": "h200", "products": ["NVIDIA-H200"]}],
}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningUp]:
    """One service that answers slowly, one without a GPU."""
    folder = tmp_path_factory.mktemp("up")
    with RunningUp(folder, resource(**SLOW), resource("waiting", **NO_GPU)) as running:
        running.wait_until_ready("chat")
        yield running


def open_page(browser: Browser, up: RunningUp, **options: Any) -> LivePage:
    return LivePage(browser, up.page_url, **options)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_shows_services_and_their_engines_at_work(
    browser: Browser, up: RunningUp, scheme: str
) -> None:
    (engine,) = up.engines()
    with (
        httpx.Client(timeout=60) as client,
        open_page(browser, up, color_scheme=scheme).open(status="live") as live,
        client.stream("POST", f"{up.url}/v1/completions", json=_long_request()) as answer,
    ):
        assert answer.is_success
        page = live.page
        card = page.locator(f'[data-key="{engine["name"]}"]')
        expect(card.locator(".phase")).to_have_text("ready")
        expect(card.locator(".load")).to_contain_text("1 run, 0 wait")
        expect(card.locator(".readout")).to_contain_text("arrow keys")  # the map has come
        group = card.locator(".map")
        group.focus()
        page.keyboard.press("ArrowRight")
        expect(card.locator(".readout")).to_contain_text("Block 1: held by")
        page.keyboard.press("Escape")
        expect(card.locator(".readout")).to_contain_text("arrow keys")

        waiting = page.locator('[data-key="waiting"]').first
        expect(waiting.locator(".ready")).to_have_text("NoGPUNode")
        expect(waiting).to_contain_text("--simulate h200=N stands in for them")
        waiting.locator("summary", has_text="Conditions").click()
        expect(waiting.locator(".conditions")).to_contain_text("GPUsAvailable")
        expect(page.locator("#news")).to_contain_text("NoGPUNode")
        assert _violations(live) == []


def test_it_shows_an_edit_and_what_is_wrong_with_another(browser: Browser, up: RunningUp) -> None:
    good = up.file.read_text()
    with open_page(browser, up, viewport={"width": 390, "height": 844}).open(status="live") as live:
        up.file.write_text("kind: Pod")
        expect(live.page.locator("#banner")).to_contain_text("document 1 is Pod")
        up.file.write_text(good)
        expect(live.page.locator("#banner")).to_be_hidden()
        assert live.page.evaluate("document.documentElement.scrollWidth") <= 390
        tables = "[...document.querySelectorAll('.scroll')]"
        assert live.page.evaluate(f"{tables}.every((one) => one.scrollWidth <= one.clientWidth)")


def test_it_says_when_nobody_answers_and_comes_back(browser: Browser, tmp_path: Path) -> None:
    with RunningUp(tmp_path, resource()) as up, open_page(browser, up) as live:
        live.allow("Failed to load resource|ERR_")
        live.open(status="live")
        up.process.kill()
        live.wait_for_status("lost")
        expect(live.page.locator("#status")).to_have_text("quire up does not answer")


def test_it_can_be_read_by_programs(up: RunningUp) -> None:
    wait_until(lambda: up.service()["ready_replicas"] == 1)
    answer = httpx.get(f"{up.page_url}/snapshot", timeout=60)
    assert answer.headers["content-type"] == "application/json"
    assert json.loads(answer.content)["url"] == f"{up.url}/v1"


def _long_request() -> dict[str, Any]:
    return {
        "model": "chat",
        "prompt": "word " * 100,
        "max_tokens": 3000,
        "stream": True,
        "ignore_eos": True,
    }


def _violations(live: LivePage) -> list[str]:
    found: list[str] = [one["id"] for one in Axe().run(live.page).response["violations"]]
    return found
