"""Draws the dashboards from what a Prometheus answers, without Grafana: a page for each board.

    python -m hack.observability.pictures URL FOLDER [--minutes 10] [--service default/chat]

Titles, units, legends, stacking and limits are those of the panels, so a panel that says nothing
here says nothing there. With Chromium installed, each page is a picture, too.
"""

import argparse
import html
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from hack.observability.boards import BOARDS
from hack.observability.curves import Curve, draw
from hack.observability.panels import Board, Panel

_STYLE = """
body { font: 13px system-ui, sans-serif; margin: 16px; background: #f4f5f5; color: #24292e }
h1 { font-size: 18px } h2 { font-size: 14px; margin: 14px 0 6px }
.row { display: grid; grid-template-columns: repeat(2, 1fr); gap: 8px }
.panel { background: #fff; border: 1px solid #dcdcdc; border-radius: 3px; padding: 8px }
.panel h3 { font-size: 13px; margin: 0 }
.panel p { margin: 2px 0 4px; color: #6b7280; font-size: 11px }
.legend { font-size: 11px; line-height: 1.5 }
.legend span { margin-right: 12px; white-space: nowrap }
.legend i { display: inline-block; width: 12px; height: 3px; margin-right: 4px }
.none { height: 190px; display: grid; place-items: center; color: #9ca3af }
"""
_LABEL = re.compile(r"{{[^}]*}}")
_WIDTH, _PANEL_HEIGHT = 1280, 276
_POINTS = 120
_SECONDS = 60
_PICTURE_SECONDS = 300
"""A browser's, which a busy machine starts slowly."""

Ask = Callable[[str], list[dict[str, Any]]]
"""Series of an expression over the time that is drawn."""


def ranged(url: str, minutes: float) -> Ask:
    """Ask a Prometheus about the last minutes."""
    end = time.time()
    seconds = minutes * 60
    step = max(seconds / _POINTS, 1.0)
    span = {"start": str(end - seconds), "end": str(end), "step": f"{step:.0f}s"}

    def ask(expression: str) -> list[dict[str, Any]]:
        answer = httpx.get(
            f"{url}/api/v1/query_range", params={"query": expression, **span}, timeout=_SECONDS
        ).json()
        if answer["status"] != "success":
            raise ValueError(f"{expression}: {answer['error']}")
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    return ask


def curves_of(panel: Panel, ask: Ask, service: str) -> list[Curve]:
    """A panel's series, named by its legends."""
    found = []
    for query in panel.queries:
        expression = query.expression.replace("$service", service)
        several = ask(expression.replace("$__rate_interval", "1m"))
        for series in sorted(several, key=lambda one: sorted(one["metric"].items())):
            name = query.legend
            for label, value in series["metric"].items():
                name = name.replace(f"{{{{{label}}}}}", value)
            name = _LABEL.sub("", name)  # as Grafana has it: nothing for a label that is not there
            points = [(float(at), float(value)) for at, value in series["values"]]
            found.append(Curve(" ".join(name.split()), points, query.colour))
    return found


def page_of(board: Board, ask: Ask, service: str = ".*") -> str:
    """A board's page."""
    parts = [f"<h1>{html.escape(board.title)}</h1>"]
    for title, panels in board.rows:
        cells = "".join(_cell(panel, curves_of(panel, ask, service)) for panel in panels)
        parts.append(f'<h2>{html.escape(title)}</h2><div class="row">{cells}</div>')
    head = f'<!doctype html><meta charset="utf-8"><style>{_STYLE}</style>'
    return head + "".join(parts)


def _cell(panel: Panel, curves: list[Curve]) -> str:
    drawn = draw(panel, curves) if curves else '<div class="none">no data</div>'
    title, words = html.escape(panel.title), html.escape(panel.description)
    return f'<div class="panel"><h3>{title}</h3><p>{words}</p>{drawn}</div>'


def photograph(page: Path, board: Board) -> Path | None:
    """The page as a picture beside it; None where no Chromium is installed."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if program is None:
        return None
    num_rows = sum(-(-len(panels) // 2) for _, panels in board.rows)
    height = 70 + num_rows * _PANEL_HEIGHT + 40 * len(board.rows)
    picture = page.with_suffix(".png")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
    subprocess.run(
        [program, *flags, f"--window-size={_WIDTH},{height}", f"--screenshot={picture}", page],
        check=True,
        capture_output=True,
        timeout=_PICTURE_SECONDS,
    )
    return picture


def main() -> int:
    """Draw all boards."""
    parser = argparse.ArgumentParser(prog="python -m hack.observability.pictures")
    parser.add_argument("url", help="of Prometheus")
    parser.add_argument("folder", type=Path, help="where pages and pictures go")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--service", default=".*", help="NAMESPACE/NAME, or an expression")
    parsed = parser.parse_args()
    draw_boards(parsed.url, parsed.folder, parsed.minutes, parsed.service)
    return 0


def draw_boards(url: str, folder: Path, minutes: float, service: str = ".*") -> None:
    """All boards as pages, and as pictures where that can be."""
    folder.mkdir(parents=True, exist_ok=True)
    for board in BOARDS:
        page = folder / f"{board.name}.html"
        page.write_text(page_of(board, ranged(url, minutes), service))
        print(f"wrote {photograph(page, board) or page}")


if __name__ == "__main__":
    sys.exit(main())
