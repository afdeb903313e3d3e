"""The documentation site as a browser shows it: both languages, nothing from elsewhere, phones."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from playwright.sync_api import Browser, Page, Response

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "",
    "concepts/blocks/",
    "start/laptop/",
    "reference/helm-values/",
    "files/manifests/samples/api-keys.yaml/",
    "zh/",
    "zh/concepts/admission/",
    "zh/runbooks/",
)
PHONE = {"width": 390, "height": 844}


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("site")
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    handler = partial(QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@contextmanager
def opened(browser: Browser, url: str, **options: Any) -> Iterator[tuple[Page, list[str]]]:
    """A page that has come to rest, and what it fetched from elsewhere or in vain."""
    with browser.new_context(**options) as context:
        page = context.new_page()
        problems: list[str] = []
        home = url.split("/", 3)[:3]
        page.on("request", lambda one: _note(problems, one.url, home))
        page.on("response", lambda one: _note_failure(problems, one))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(url, wait_until="networkidle")
        yield page, problems


def _note(problems: list[str], url: str, home: list[str]) -> None:
    if url.split("/", 3)[:3] != home and not url.startswith("data:"):
        problems.append(url)


def _note_failure(problems: list[str], answer: Response) -> None:
    # the theme looks for a map of the other language's pages below each page, and does without
    if answer.status >= 400 and not answer.url.endswith("/sitemap.xml"):
        problems.append(answer.url)


@pytest.mark.parametrize("path", PAGES)
def test_pages_fetch_nothing_from_elsewhere_and_fit_a_phone(
    browser: Browser, site: str, path: str
) -> None:
    with opened(browser, site + path, viewport=PHONE) as (page, problems):
        assert problems == []
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        pictures = "[...document.images].filter(one => one.complete && !one.naturalWidth).length"
        assert page.evaluate(pictures) == 0


def test_the_other_language_is_the_same_page(browser: Browser, site: str) -> None:
    with opened(browser, f"{site}concepts/blocks/") as (page, _):
        link = page.locator("a[hreflang=zh]").first.get_attribute("href")
        assert link is not None
        page.goto(urljoin(page.url, link))
        assert page.locator("h1").inner_text().startswith("KV 块与预留")
        picture = page.locator("article img").first.get_attribute("src")
        assert picture is not None
        assert "块池" in page.request.get(urljoin(page.url, picture)).text()
        assert page.locator("h2#held-is-not-enough").count() == 1  # anchors hold in any language


@pytest.mark.parametrize(
    ("path", "words", "title"),
    [("", "reserved", "KV blocks and reservations"), ("zh/", "预留的峰值", "KV 块与预留")],
)
def test_what_is_looked_for_is_found(
    browser: Browser, site: str, path: str, words: str, title: str
) -> None:
    with opened(browser, site + path) as (page, problems):
        field = page.locator("input.md-search__input")
        field.click()
        field.fill(words)
        field.press("End")  # the theme looks for what is there when a key goes up
        page.locator(".md-search-result__item").first.wait_for(timeout=60_000)
        found = page.locator(".md-search-result__article h1").all_inner_texts()
        assert title in found
        assert problems == []
