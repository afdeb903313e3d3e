"""The grid, its legend, the table of requests and the pressure: what they show is what is."""

from collections import Counter
from typing import Any

from playwright.sync_api import expect

from quire_engine.protocol.state import EngineState
from tests.api.servers import SIMULATED, RunningServer, wait_until
from tests.browser.conftest import OpenPage, StartServer
from tests.browser.load import requests_in_flight
from tests.browser.pages import LivePage

_PITCH = 18
"""Pixels from cell to cell of a grid with few blocks."""
_READ_CELLS = """
async ([pitch, numCells]) => {
  // figures are there at once, the grid is drawn with the next frame
  const frame = () => new Promise(requestAnimationFrame);
  await frame().then(frame);
  const canvas = document.querySelector("#grid-canvas");
  const context = canvas.getContext("2d");
  const columns = Math.floor(document.querySelector("#grid").clientWidth / pitch);
  return Array.from({ length: numCells }, (_, cell) => {
    const x = (cell % columns) * pitch + 1;
    const y = Math.floor(cell / columns) * pitch + 1;
    return String(context.getImageData(x, y, 1, 1).data);
  });
}
"""


def request(number: int, **changes: Any) -> dict[str, Any]:
    return {"prompt": f"{number} " + "word " * 12, "max_tokens": 300} | changes


def read_cells(live: LivePage) -> Counter[str]:
    """How many cells have which colour in their corner, which no mark covers."""
    live.allow("willReadFrequently")
    colors: list[str] = live.page.evaluate(_READ_CELLS, [_PITCH, 96])
    return Counter(colors)


def pressure_of(server: RunningServer) -> str:
    pressure = server.state().pressure
    return "" if pressure is None else f"{pressure.value:.2f}"


def shows(live: LivePage, state: EngineState) -> bool:
    blocks = state.blocks
    shown = [live.count(key) for key in ("held", "free", "cached", "promised")]
    return shown == [blocks.held, blocks.free, blocks.cached, blocks.reserved - blocks.held]


def test_the_counts_and_the_colours_are_those_of_the_state(
    still_server: RunningServer, open_page: OpenPage
) -> None:
    with requests_in_flight(still_server, [request(1), request(2), request(3)]):
        live = open_page(still_server)
        expect(live.page.locator("#requests tr")).to_have_count(3)
        wait_until(lambda: shows(live, still_server.state()))
        held = live.count("held")
        rows = [
            int(text) for text in live.page.locator("#requests td:nth-child(4)").all_inner_texts()
        ]
        colors = read_cells(live)

    # three colours of requests and that of free blocks, cached and promised ones too
    assert len(colors) == 4
    (_, num_free), *of_requests = colors.most_common()
    assert num_free == 96 - held
    assert sorted(count for _, count in of_requests) == sorted(rows)
    assert sum(rows) == held


def test_a_flood_is_shown_running_and_waiting_with_what_binds(
    still_server: RunningServer, open_page: OpenPage
) -> None:
    live = open_page(still_server)
    expect(live.page.locator("#no-requests")).to_be_visible()
    with requests_in_flight(still_server, [request(n, priority=n % 2) for n in range(40)]):
        summary = live.page.locator("#requests-summary")
        expect(summary).to_have_text("4 running, 36 waiting")
        rows = live.page.locator("#requests tr")
        expect(rows).to_have_count(40)
        expect(live.page.locator("#requests tr.is-waiting")).to_have_count(36)
        expect(live.page.locator("#binding")).to_have_text("bound by seats")
        wait_until(lambda: live.text("#pressure") == pressure_of(still_server))
        assert live.page.locator("#requests .tag", has_text="background").count() == 20
    expect(rows).to_have_count(0)
    expect(live.page.locator("#no-requests")).to_be_visible()


def test_hundreds_of_requests_are_counted_though_not_all_are_listed(
    start_server: StartServer, open_page: OpenPage
) -> None:
    flags = ("--simulated-step-seconds", "0.2", "--max-num-seqs", "300")
    server = start_server(*SIMULATED, *flags)
    live = open_page(server)
    with requests_in_flight(server, [request(n) for n in range(400)]):
        summary = live.page.locator("#requests-summary")
        expect(summary).to_have_text("300 running, 100 waiting, 80 not listed")
        expect(live.page.locator("#requests tr")).to_have_count(320)


def test_very_many_blocks_are_shown_as_a_sample(
    start_server: StartServer, open_page: OpenPage
) -> None:
    flags = ("--max-num-blocks", "200000", "--simulated-step-seconds", "0.2")
    server = start_server(*SIMULATED, *flags)
    live = open_page(server, viewport={"width": 360, "height": 740})
    with requests_in_flight(server, [request(1)]):
        expect(live.page.locator("#blocks-summary")).to_contain_text("of 200,000 held")
        expect(live.page.locator("#grid-readout")).to_contain_text("1 block in ")
        box = live.page.locator("#grid-canvas").bounding_box()
    assert box is not None
    assert 0 < box["height"] <= 340


def test_the_keys_walk_over_the_blocks_and_say_whose_they_are(
    still_server: RunningServer, open_page: OpenPage
) -> None:
    readout = "#grid-readout"
    with requests_in_flight(still_server, [request(1)]):
        live = open_page(still_server)
        expect(live.page.locator("#requests tr")).to_have_count(1)
        name = live.text("#requests code")
        live.page.focus("#grid")
        live.page.keyboard.press("ArrowRight")
        while "held" not in live.text(readout):  # earlier requests' blocks are still cached
            live.page.keyboard.press("ArrowRight")
        assert f": held by {name} (decode, " in live.text(readout)
        live.page.keyboard.press("Enter")
        button = live.page.locator("#requests button")
        expect(button).to_have_attribute("aria-pressed", "true")
        while "free" not in live.text(readout):
            live.page.keyboard.press("ArrowDown")
        live.page.keyboard.press("Escape")
        assert "Point at a block" in live.text(readout)


def test_a_request_that_is_chosen_stands_out(
    still_server: RunningServer, open_page: OpenPage
) -> None:
    with requests_in_flight(still_server, [request(1), request(2)]):
        live = open_page(still_server)
        expect(live.page.locator("#requests tr")).to_have_count(2)
        before = read_cells(live)
        live.page.locator("#requests button").first.press("Enter")
        after = read_cells(live)

    kept = set(before) & set(after)
    assert len(before) == len(after) == 3
    assert len(kept) == 1  # the chosen one has its colour, the other and the free ones fade
    assert kept < {color for color, _ in before.most_common()[1:]}


def test_rates_and_steps_are_measured(start_server: StartServer, open_page: OpenPage) -> None:
    server = start_server(*SIMULATED, "--simulated-step-seconds", "0.05")
    live = open_page(server)
    with requests_in_flight(server, [request(n, max_tokens=2000) for n in range(4)]):
        wait_until(lambda: live.text("#step-time") not in "–0")
        step_milliseconds = float(live.text("#step-time"))
        wait_until(lambda: live.text("#decode-rate") not in "–0")
        rate = float(live.text("#decode-rate"))
    assert step_milliseconds >= 50
    assert 0 < rate <= 4 / 0.05
