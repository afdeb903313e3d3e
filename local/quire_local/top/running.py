"""Looks again and again: on a screen that is redrawn, as one table after another, or as JSON."""

import os
import sys
import time
from collections.abc import Callable

import msgspec
from rich.console import Console
from rich.live import Live

from quire_local.top.drawing import draw
from quire_local.top.look import Look
from quire_local.top.rates import Rates
from quire_local.top.source import AwayError, Source
from quire_local.top.view import View, make_view

_PIPE_COLUMNS = 200
_NOTHING = Look(at=0.0, gateways=())


class Watcher:
    """Knows the newest view of a source, also while it is away.

    Parameters
    ----------
    chosen
        Show this service alone.
    """

    def __init__(
        self, source: Source, chosen: str | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._source = source
        self._chosen = chosen
        self._clock = clock
        self._rates = Rates()
        self._look = _NOTHING

    def view(self) -> View:
        """Look, and put together what there is."""
        problem = ""
        try:
            look = self._source.look()
        except AwayError as error:
            problem = str(error)
        else:
            self._look = look
            self._rates.add(look)
        return make_view(
            self._look,
            self._rates,
            source=self._source.label,
            age_seconds=self._clock() - self._look.at if problem and self._look.gateways else 0.0,
            problem=problem,
            names=self._source.name_of,
            chosen=self._chosen,
        )

    def why_none(self) -> str:
        """Why the chosen service is not shown, and which there are; empty while it is."""
        told = {one.key for each in self._look.gateways for one in each.fleet.services}
        names = sorted("/".join(key) for key in told)
        if self._chosen is None or any(self._chosen in (n, n.partition("/")[2]) for n in names):
            return ""
        return f"no service {self._chosen}: there are {', '.join(names) or 'none yet'}"


def show_once(watcher: Watcher, interval_seconds: float, *, as_json: bool) -> None:
    """Look twice, so that there are rates, and print once.

    Raises
    ------
    AwayError
        Nobody answers, or there is no such service.
    """
    for pause in (interval_seconds, 0.0):
        view = watcher.view()
        if view.problem and not view.gateways:
            raise AwayError(view.problem)
        time.sleep(pause)
    if why := watcher.why_none():
        raise AwayError(why)
    _print(view, as_json=as_json)


def show_on(watcher: Watcher, interval_seconds: float, *, as_json: bool) -> None:
    """Go on until Ctrl-C."""
    console = Console()
    if as_json or not console.is_terminal:
        while True:
            _print(watcher.view(), as_json=as_json)
            time.sleep(interval_seconds)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            view = watcher.view()
            due = time.monotonic() + interval_seconds
            while (left := due - time.monotonic()) > 0:
                # drawn several times a look: the window may have another size by now
                live.update(draw(view, console, console.height), refresh=True)
                time.sleep(min(left, 0.25))


def _print(view: View, *, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode(view).decode(), flush=True)
        return
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(width=_PIPE_COLUMNS)  # whoever reads a pipe wants every column
    console.print(draw(view, console))
    print(flush=True)
    sys.stdout.flush()
