"""The live page as tests use it."""

import re
from types import TracebackType
from typing import Any, Self

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect

STATUS = "#status"
CHAT_INPUT = "#chat-input"
ANSWER = ".message.is-assistant .message-text"
ANSWER_FACTS = ".message.is-assistant .message-facts"

expect.set_options(timeout=20_000)


class LivePage:
    """An open page of one server. Leaving the block fails on any problem that it had.

    Parameters
    ----------
    options
        Of the browser's context: viewport, color_scheme, ...
    """

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.url = url
        self.problems: list[str] = []
        self._allowed: list[str] = []
        self.context = browser.new_context(**options)
        self.page: Page = self.context.new_page()
        self.page.on("console", self._note_message)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("request", self._note_request)
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.context.close()
        if exc is None:
            problems = [p for p in self.problems if not any(re.search(a, p) for a in self._allowed)]
            assert not problems, f"the page had problems: {problems}"

    def allow(self, pattern: str) -> None:
        """Do not count console messages with this as problems: the test provokes them."""
        self._allowed.append(pattern)

    def open(self, *, status: str = "ok") -> Self:
        """Load the page and wait until it shows the engine in this state."""
        self.page.goto(self.url + "/")
        self.wait_for_status(status)
        return self

    def wait_for_status(self, status: str) -> None:
        """Wait until the page says so."""
        expect(self.page.locator(STATUS)).to_have_attribute("data-status", status, timeout=40_000)

    def text(self, selector: str) -> str:
        """What an element says."""
        return self.page.locator(selector).inner_text()

    def count(self, key: str) -> int:
        """A figure of the legend."""
        return int(self.text(f'[data-count="{key}"]').replace(",", ""))

    def ask(self, message: str) -> None:
        """Write a message and send it with the Enter key."""
        self.page.fill(CHAT_INPUT, message)
        self.page.press(CHAT_INPUT, "Enter")

    def wait_for_answer(self) -> str:
        """Wait until the newest answer is complete; returns its text."""
        expect(self.page.locator(".message.is-running")).to_have_count(0, timeout=90_000)
        return self.page.locator(ANSWER).last.inner_text()

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text}")

    def _note_request(self, request: Request) -> None:
        if not request.url.startswith(self.url + "/"):
            self.problems.append(f"request to {request.url}")
