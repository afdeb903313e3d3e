"""The page that `quire simulate --html` writes, from a file, on desktops and phones."""

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from quire_local.cli import main

_TEXTS = """() => [...document.querySelectorAll('svg')].map(chart => {
  const box = element => element.getBoundingClientRect().toJSON();
  return [box(chart), [...chart.querySelectorAll('text')].map(box)];
})"""
_LEAST_HEIGHT = 9
"""Of a line of letters, in pixels: smaller ones cannot be read."""
Box = dict[str, float]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with several types, a fault, decisions and broken promises."""
    path = tmp_path_factory.mktemp("page") / "a.html"
    traffic = ["--generate=shifting", "--seconds=200", "--requests-per-second=2", "--times=1.5"]
    types = ["--gpu=t4,l4=4@0.9,h100", "--quantization=int4", "--slo-time-per-output-token=120ms"]
    scaled = ["--scaler=quire,fixed", "--fixed=t4=1,l4=1", "--event=60:kill:t4:0.5"]
    assert main(["simulate", *traffic, *types, *scaled, f"--html={path}"]) == 0
    return path


def is_apart(one: Box, other: Box) -> bool:
    return (
        one["right"] <= other["left"]
        or other["right"] <= one["left"]
        or one["bottom"] <= other["top"]
        or other["bottom"] <= one["top"]
    )


@pytest.mark.parametrize(
    ("scheme", "width"), [("light", 360), ("dark", 360), ("light", 1440), ("dark", 1440)]
)
def test_all_can_be_read_and_nothing_is_loaded(
    browser: Browser, written: Path, scheme: str, width: int
) -> None:
    viewport = {"width": width, "height": 800}
    with browser.new_context(color_scheme=scheme, viewport=viewport) as context:  # type: ignore[arg-type]  # it is one of the schemes
        page = context.new_page()
        asked, said = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.goto(written.as_uri())
        page.locator("summary").click()
        results = Axe().run(page)
        widest = page.evaluate("document.documentElement.scrollWidth")
        charts = page.evaluate(_TEXTS)
    assert asked == [written.as_uri()]
    assert said == []
    assert results.violations_count == 0, results.generate_report()
    assert widest == width
    for chart, texts in charts:
        for index, text in enumerate(texts):
            assert text["height"] >= _LEAST_HEIGHT
            assert chart["left"] <= text["left"]
            assert text["right"] <= chart["right"]
            assert all(is_apart(text, other) for other in texts[:index])
