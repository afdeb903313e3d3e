"""The chat with a real model, with the keyboard alone, and with what must stay harmless."""

import json
import re
from pathlib import Path

from playwright.sync_api import Route, expect

from tests.api.servers import RunningServer, wait_until
from tests.browser.conftest import OpenPage, StartServer
from tests.browser.pages import ANSWER, ANSWER_FACTS, CHAT_INPUT

_EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script><b>bold</b>"

_NOTE_LENGTHS = """selector => {
  window.lengths = new Set();
  const note = () => {
    const text = document.querySelector(selector)?.textContent;
    if (text) window.lengths.add(text.length);
  };
  new MutationObserver(note).observe(document.body, {childList: true, subtree: true});
}"""
"""Each length that an answer has had, however late the browser draws it."""


def test_an_answer_is_streamed_with_its_figures(
    real_server: RunningServer, open_page: OpenPage
) -> None:
    live = open_page(real_server)
    live.page.evaluate(_NOTE_LENGTHS, ANSWER)
    live.ask("What is the capital of France?")

    assert "Paris" in live.wait_for_answer()
    lengths = live.page.evaluate("[...window.lengths]")
    assert len(lengths) > 2, f"the answer came in one piece: {lengths}"
    facts = live.text(ANSWER_FACTS)
    assert re.fullmatch(
        r"first token [\d.]+ m?s · [\d.]+ tokens/s · \d+ tokens · \d+ of \d+ prompt tokens cached",
        facts,
    ), facts

    live.ask("And of Italy? Answer in one short sentence.")
    live.wait_for_answer()
    cached = re.search(
        r"(\d+) of (\d+) prompt tokens cached", live.page.locator(ANSWER_FACTS).last.inner_text()
    )
    assert cached is not None
    assert 16 <= int(cached[1]) < int(cached[2])  # the conversation so far was found again


def test_the_keyboard_alone_is_enough(real_server: RunningServer, open_page: OpenPage) -> None:
    live = open_page(real_server)
    keyboard = live.page.keyboard
    keyboard.press("Tab")
    expect(live.page.locator(".skip")).to_be_focused()
    keyboard.press("Enter")
    expect(live.page.locator(CHAT_INPUT)).to_be_focused()
    keyboard.type("Count from one")
    keyboard.press("Shift+Enter")
    keyboard.type("to one thousand, please.")
    keyboard.press("Tab")
    keyboard.press("Enter")
    expect(live.page.locator("#set-max-tokens")).to_be_visible()
    for _ in range(3):
        keyboard.press("Tab")
    keyboard.press("Control+A")
    keyboard.type("1500")
    keyboard.press("Shift+Tab")
    keyboard.press("Shift+Tab")
    keyboard.press("Shift+Tab")
    keyboard.press("Shift+Tab")
    keyboard.press("Enter")

    expect(live.page.locator(".message.is-user .message-text")).to_have_text(
        "Count from one\nto one thousand, please."
    )
    expect(live.page.locator(ANSWER)).to_contain_text(re.compile(r"\w"))
    expect(live.page.locator("#requests .is-mine")).to_be_visible()
    keyboard.press("Escape")
    expect(live.page.locator(ANSWER_FACTS)).to_have_text("stopped")
    wait_until(lambda: real_server.state().blocks.held == 0)


def test_what_a_model_says_is_text(
    start_server: StartServer, open_page: OpenPage, tmp_path: Path
) -> None:
    answer = tmp_path / "answer.txt"
    answer.write_text(_EVIL)
    live = open_page(start_server("--command", f"cat {answer}"))
    live.ask(_EVIL)

    assert live.wait_for_answer() == _EVIL
    assert live.text(".message.is-user .message-text") == _EVIL
    assert live.page.locator("#chat-log img, #chat-log script, #chat-log b").count() == 0


def test_names_that_look_like_html_are_text(
    still_server: RunningServer, open_page: OpenPage
) -> None:
    live = open_page(still_server)
    state = still_server.get("/state").json() | {"model_id": _EVIL}
    request = {
        "id": f"chatcmpl-{_EVIL}", "number": 1, "priority": _EVIL, "phase": _EVIL,
        "num_prompt_tokens": 1, "num_tokens": 2, "num_computed_tokens": 1, "max_tokens": 3,
        "num_blocks": 1, "num_cached_tokens": 0, "queue_seconds": 0, "age_seconds": 0,
    }  # fmt: skip
    view = {
        "seconds": 1, "executor": _EVIL, "blocks": state["blocks"], "requests": [request],
        "map": {"stride": 1, "num_cells": 1, "runs": [6, 1], "num_shared": 0},
        "num_running": 1, "num_waiting": 0, "num_prefill_tokens": 0, "num_decode_tokens": 0,
        "num_prefix_queries": 0, "num_prefix_hits": 0, "busy_seconds": 0, "num_steps": 0,
    }  # fmt: skip
    told = {"version": _EVIL, "status": "ok", "state": state, "view": view}
    body = f"event: live\ndata: {json.dumps(told)}\n\n"
    live.page.route("**/state/live", lambda route: route.fulfill(body=body))
    live.page.reload()

    expect(live.page.locator("#model")).to_have_text(_EVIL)
    expect(live.page.locator("#facts")).to_contain_text(_EVIL)
    expect(live.page.locator("#requests td").nth(1)).to_have_text(_EVIL)
    assert live.page.locator("main img, main script, main b:not([data-count])").count() == 0


def test_a_key_that_is_demanded_is_asked_for_and_kept_in_memory_alone(
    still_server: RunningServer, open_page: OpenPage
) -> None:
    def guard(route: Route) -> None:
        if route.request.headers.get("authorization") == "Bearer sesame":
            route.continue_()
        else:
            route.fulfill(status=401, json={"error": {"message": "no key"}})

    live = open_page(still_server)
    live.allow("401")
    live.page.route("**/state/live", guard)
    live.page.route("**/v1/**", guard)
    live.page.reload()
    live.page.locator("#key-input").fill("wrong")
    live.page.keyboard.press("Enter")
    expect(live.page.locator("#key-dialog")).to_be_hidden()
    expect(live.page.locator("#key-dialog")).to_be_visible()
    expect(live.page.locator("#key-input")).to_have_value("")
    live.page.locator("#key-input").fill("sesame")
    live.page.keyboard.press("Enter")

    live.wait_for_status("ok")
    live.ask("Open")
    expect(live.page.locator(ANSWER)).to_contain_text(re.compile(r"\w"))
    live.page.keyboard.press("Escape")
    stored = live.page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])")
    assert "sesame" not in stored + str(live.context.cookies())


def test_a_refusal_says_why_and_when_to_come_again(
    start_server: StartServer, open_page: OpenPage
) -> None:
    flags = ("--simulated-step-seconds", "0.5", "--slo-time-to-first-token", "0.01")
    live = open_page(start_server("--simulate", "h100", "--model-shape", "llama3-8b", *flags))
    live.allow("429")
    live.ask("Quick!")

    error = live.page.locator(".message-error")
    expect(error).to_contain_text(re.compile(r"Try again in \d+ s\.$"))
    live.ask("Again?")  # the conversation goes on
    expect(error).to_have_count(2)
