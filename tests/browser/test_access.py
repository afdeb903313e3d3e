"""The page of a server that demands keys."""

import re

from playwright.sync_api import Browser, expect

from tests.api.servers import SIMULATED
from tests.browser.conftest import StartServer
from tests.browser.pages import ANSWER, LivePage


def test_a_guarded_engine_is_watched_and_asked_with_its_key(
    browser: Browser, start_server: StartServer
) -> None:
    server = start_server(*SIMULATED, "--simulated-step-seconds", "0.01", "--api-key", "sesame")
    with LivePage(browser, server.url) as live:
        live.allow("401")
        live.page.goto(server.url + "/")
        live.page.locator("#key-input").fill("sesame")
        live.page.keyboard.press("Enter")
        live.wait_for_status("ok")
        live.ask("Open")
        expect(live.page.locator(ANSWER)).to_contain_text(re.compile(r"\w"))
