"""What the page does when the engine or the connection goes, and when nobody looks."""

import os
import re
import signal

from playwright.sync_api import expect

from tests.api.servers import SIMULATED, RunningServer
from tests.browser.conftest import OpenPage, StartServer
from tests.browser.pages import ANSWER, LivePage

_HIDE = """
(isHidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => isHidden });
  document.dispatchEvent(new Event("visibilitychange"));
}
"""


def is_live(request_url: str) -> bool:
    return request_url.endswith("/state/live")


def test_a_core_that_dies_is_shown_and_the_next_one_too(
    start_server: StartServer, open_page: OpenPage
) -> None:
    flags = ("--simulated-step-seconds", "0.05", "--core-restart-backoff-seconds", "1")
    server = start_server(*SIMULATED, *flags)
    live = open_page(server)
    live.ask("Go on for long.")
    expect(live.page.locator(ANSWER)).to_contain_text(re.compile(r"\w"))
    os.kill(server.core_pid(), signal.SIGKILL)

    live.wait_for_status("restarting")
    expect(live.page.locator("#banner")).to_contain_text("starting again")
    expect(live.page.locator("#chat-send")).to_be_disabled()
    expect(live.page.locator(".message-error")).to_contain_text("Send the request again.")
    live.wait_for_status("ok")
    expect(live.page.locator("#banner")).to_be_hidden()
    expect(live.page.locator("#restarts")).to_have_text("1")
    expect(live.page.locator("#no-requests")).to_be_visible()
    live.ask("And now?")
    expect(live.page.locator(ANSWER)).to_have_count(2)
    expect(live.page.locator(ANSWER).last).to_contain_text(re.compile(r"\w"))
    live.page.keyboard.press("Escape")


def test_a_drain_is_shown_and_its_end_too(still_server: RunningServer, open_page: OpenPage) -> None:
    live = open_page(still_server)
    still_server.post("/drain", {})
    try:
        live.wait_for_status("draining")
        expect(live.page.locator("#banner")).to_contain_text("new ones are refused")
        expect(live.page.locator("#chat-send")).to_be_disabled()
    finally:
        undo_drain(live)
    live.wait_for_status("ok")
    expect(live.page.locator("#chat-send")).to_be_enabled()


def undo_drain(live: LivePage) -> None:
    assert live.context.request.delete(f"{live.url}/drain").ok


def test_a_lost_server_is_found_again(start_server: StartServer, open_page: OpenPage) -> None:
    first = start_server(*SIMULATED)
    live = open_page(first)
    live.allow("ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_CONNECTION_RESET")
    expect(live.page.locator("#blocks-summary")).to_contain_text("held")
    held = live.text("#blocks-summary")
    first.kill()

    live.wait_for_status("lost")
    expect(live.page.locator("#board")).to_have_class("board is-stale")
    expect(live.page.locator("#blocks-summary")).to_have_text(held)
    start_server(*SIMULATED, "--port", first.url.rpartition(":")[2])
    live.wait_for_status("ok")
    expect(live.page.locator("#board")).to_have_class("board")


def test_a_page_that_comes_while_the_model_loads_fills_itself(
    start_server: StartServer, open_page: OpenPage
) -> None:
    server = start_server(*SIMULATED, "--core-restart-backoff-seconds", "3")
    os.kill(server.core_pid(), signal.SIGKILL)
    live = open_page(server, status="restarting")
    live.wait_for_status("ok")
    expect(live.page.locator("#facts")).to_contain_text("simulated h100")


def test_a_hidden_page_does_not_watch(still_server: RunningServer, open_page: OpenPage) -> None:
    live = open_page(still_server)
    with live.page.expect_event("requestfailed", lambda request: is_live(request.url)):
        live.page.evaluate(_HIDE, True)
    with live.page.expect_request(lambda request: is_live(request.url)):
        live.page.evaluate(_HIDE, False)
    live.wait_for_status("ok")
