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
_SILENCE = ("90:silence:gateways", "120:speak:gateways")
_MARKS = """() => [...document.querySelectorAll('[class^="moment-"]')].map(mark => {
  mark.scrollIntoView({block: 'center'});
  const box = mark.getBoundingClientRect(), seen = getComputedStyle(mark);
  const shape = mark.lastElementChild;
  const found = document.elementFromPoint((box.left + box.right) / 2, box.top + box.height / 3);
  const chart = mark.ownerSVGElement.getBoundingClientRect();
  return {box: {...box.toJSON(), top: box.top - chart.top, bottom: box.bottom - chart.top},
          chart: chart.toJSON(), of: mark.ownerSVGElement.ariaLabel,
          kind: mark.className.baseVal, shape: shape.tagName, fill: seen.fill,
          words: mark.querySelector('title').textContent, isOnTop: found === shape};
})"""
_LEAST_HEIGHT = 9
"""Of a line of letters, in pixels: smaller ones cannot be read."""
Box = dict[str, float]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with several types, a fault, decisions and broken promises."""
    path = tmp_path_factory.mktemp("page") / "a.html"
    traffic = ["--generate=diurnal", "--seconds=300", "--requests-per-second=2", "--times=1.5"]
    types = ["--gpu=t4,l4=4@0.9,h100", "--quantization=int4", "--slo-time-per-output-token=120ms"]
    scaled = ["--scaler=quire,fixed", "--fixed=t4=1,l4=1"]
    faults = [f"--event={one}" for one in ("60:kill:t4:0.5", *_SILENCE)]
    assert main(["simulate", *traffic, *types, *scaled, *faults, f"--html={path}"]) == 0
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


@pytest.mark.parametrize(
    ("scheme", "width"), [("light", 360), ("dark", 360), ("light", 1440), ("dark", 1440)]
)
def test_marks_tell_at_the_pointer_what_happened_and_why(
    browser: Browser, written: Path, scheme: str, width: int
) -> None:
    viewport = {"width": width, "height": 800}
    with browser.new_context(color_scheme=scheme, viewport=viewport) as context:  # type: ignore[arg-type]  # it is one of the schemes
        page = context.new_page()
        page.goto(written.as_uri())
        marks = page.evaluate(_MARKS)
        change = page.locator(".moment-change").first
        calm = change.evaluate("mark => getComputedStyle(mark).strokeWidth")
        change.hover()
        pointed = change.evaluate("mark => getComputedStyle(mark).strokeWidth")
        rows = [one.inner_text() for one in page.locator(".list tr").all()]
    of_quire = [one for one in marks if "quire" in one["of"]]
    told = "\n".join(one["words"] for one in of_quire).splitlines()
    for words in ("60 s, 1 t4 died", "90 s, nothing is heard of the gateways any more"):
        assert words in told
    reasons = [line.partition(": ")[2] for line in told if "of the target" in line]
    assert reasons  # of changes, as the operator gives them
    assert all(any(reason in row for row in rows) for reason in reasons)
    assert calm != pointed
    for index, one in enumerate(marks):
        assert one["isOnTop"], one
        assert one["chart"]["left"] <= one["box"]["left"]
        assert one["box"]["right"] <= one["chart"]["right"]
        others = (other for other in marks[:index] if other["of"] == one["of"])
        assert all(is_apart(one["box"], other["box"]) for other in others)
    # who sees no colours sees shapes
    assert {(one["kind"], one["shape"]) for one in marks} == {
        ("moment-fault", "polygon"),
        ("moment-change", "circle"),
    }
    assert len({one["fill"] for one in marks}) == 2
