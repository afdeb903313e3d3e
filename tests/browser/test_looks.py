"""Widths, themes, motion, and what an accessibility checker finds."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.api.servers import RunningServer
from tests.browser.conftest import OpenPage
from tests.browser.load import requests_in_flight
from tests.browser.pages import LivePage

_NUM_REQUESTS = 6
_BODIES = [
    {"prompt": f"{n} " + "word " * 9, "max_tokens": 300, "priority": n % 2}
    for n in range(_NUM_REQUESTS)
]


def fill(live: LivePage) -> None:
    """Bring every part of the page to show something."""
    expect(live.page.locator("#requests tr")).to_have_count(_NUM_REQUESTS)
    live.page.locator(".settings summary").click()
    live.ask("A word that is longer than the page is wide: " + "w" * 300)
    expect(live.page.locator(".message")).to_have_count(2)


@pytest.mark.parametrize(
    ("scheme", "width"), [("light", 360), ("dark", 360), ("light", 768), ("dark", 1440)]
)
def test_a_checker_finds_nothing_and_nothing_is_wider_than_the_page(
    still_server: RunningServer, open_page: OpenPage, scheme: str, width: int
) -> None:
    with requests_in_flight(still_server, _BODIES):
        viewport = {"width": width, "height": 800}
        live = open_page(still_server, color_scheme=scheme, viewport=viewport)
        fill(live)
        results = Axe().run(live.page)
        widest = live.page.evaluate("document.documentElement.scrollWidth")
        table = live.page.evaluate(
            "(({scrollWidth, clientWidth}) => scrollWidth - clientWidth)"
            "(document.querySelector('.requests .scroll'))"
        )
        live.page.locator("#chat-stop").click()
    assert results.violations_count == 0, results.generate_report()
    assert widest == width
    assert table <= 0


def background_of(live: LivePage) -> str:
    background: str = live.page.evaluate("getComputedStyle(document.body).backgroundColor")
    return background


_CORNER = (
    "String(document.querySelector('#grid-canvas').getContext('2d').getImageData(1, 1, 1, 1).data)"
)
_NOT_DRAWN = "0,0,0,0"


def corner_of_grid(live: LivePage, *, other_than: str = _NOT_DRAWN) -> str:
    """The colour there, once it is drawn in another one: that takes until the next frame."""
    live.allow("willReadFrequently")
    live.page.wait_for_function(f"other => {_CORNER} !== other", arg=other_than)
    corner: str = live.page.evaluate(_CORNER)
    return corner


def test_the_theme_is_the_systems_until_another_is_chosen(
    still_server: RunningServer, open_page: OpenPage
) -> None:
    live = open_page(still_server, color_scheme="dark")
    toggle = live.page.locator("#theme")
    expect(live.page.locator("#blocks-summary")).to_contain_text("held")
    dark, dark_grid = background_of(live), corner_of_grid(live)
    toggle.press("Enter")
    expect(toggle).to_have_text("theme: light")
    light = background_of(live)
    assert light != dark
    assert corner_of_grid(live, other_than=dark_grid) != _NOT_DRAWN

    live.page.reload()
    expect(toggle).to_have_text("theme: light")
    assert background_of(live) == light
    toggle.press("Enter")
    assert background_of(live) == dark
    toggle.press("Enter")
    expect(toggle).to_have_text("theme: system")
    live.page.emulate_media(color_scheme="light")
    assert background_of(live) == light


def test_nothing_moves_for_those_who_want_no_motion(
    still_server: RunningServer, open_page: OpenPage
) -> None:
    animations = "document.getAnimations().length"
    for motion, moves in (("no-preference", True), ("reduce", False)):
        live = open_page(still_server, reduced_motion=motion)
        live.ask("Go on.")
        expect(live.page.locator(".message.is-running")).to_have_count(1)
        assert (live.page.evaluate(animations) > 0) is moves
        live.page.keyboard.press("Escape")
        expect(live.page.locator(".message.is-running")).to_have_count(0)
