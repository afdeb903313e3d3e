"""What `quire top` makes of what gateways say, and how it is drawn."""

import io
import math
from typing import Any

import msgspec
import pytest
from rich.console import Console

from quire_engine.protocol.messages import BlockCounts
from quire_local.top.drawing import bar, draw
from quire_local.top.look import Look, read_gateway
from quire_local.top.rates import Rates, quantile
from quire_local.top.running import Watcher
from quire_local.top.source import AwayError
from quire_local.top.view import View, make_view

_POD = "chat-l4-6d8f9c7b5-x2x9z"


def _state(held: int = 30, computed: int | None = 1000, preempted: int = 0) -> dict[str, Any]:
    terms = {"blocks": 0.5, "seats": 0.9, "first_token": 0.0, "step": 0.1}
    return {
        "schema_version": 1,
        "sequence": 7,
        "is_ready": True,
        "is_draining": False,
        "blocks": {
            "total": 100,
            "held": held,
            "free": 100 - held,
            "cached": 20,
            "reserved": held,
            "queued": 0,
        },
        "sequences": {"running": 3, "waiting": 2, "slots": 8},
        "pressure": {"value": 0.9, "binding": "seats", "terms": terms},
        "num_preemptions": preempted,
        "num_scheduled_tokens": computed,
        "a_field_of_tomorrow": [1],
    }


def _engine(address: str = "10.0.0.1:8000", silent: float = 0.1, **changes: Any) -> dict[str, Any]:
    fields = {
        "address": address,
        "accelerator": "l4",
        "is_eligible": True,
        "is_leaving": False,
        "silent_seconds": silent,
        "in_flight": 1,
        "state": _state(),
    }
    return fields | changes


def _look(at: float, *gateways: dict[str, Any]) -> Look:
    return Look(at=at, gateways=tuple(map(_gateway, gateways)))


def _gateway(told: dict[str, Any]) -> Any:
    service = {
        "namespace": "default",
        "name": "chat",
        "queue": {"interactive": {"waiting": told.get("waiting", 0), "oldest_seconds": 2.5}},
        "demand": {
            "seconds": 1.0,
            "arrivals": [told.get("arrivals", 0), 0],
            "output_tokens": told.get("output", 0),
            "refusals": {"deadline": told.get("refused", 0)},
            "first_token": {"met": 1, "missed": 0},
        },
        "engines": told.get("engines", [_engine()]),
    }
    fleet = {"schema_version": 1, "gateway": told.get("name", "g1"), "services": [service]}
    few, all_ = told.get("first_bytes", (0, 0))
    name = 'quire_gateway_first_byte_seconds_bucket{service="default/chat",le='
    metrics = f'{name}"0.1"}} {few}\n{name}"+Inf"}} {all_}\n'
    return read_gateway(msgspec.json.encode(fleet), metrics.encode())


def _view(*looks: Look, **options: Any) -> View:
    rates = Rates()
    for look in looks:
        rates.add(look)
    return make_view(looks[-1], rates, source="http://here", **options)


def _drawn(view: View, width: int = 140, height: int | None = None, **options: Any) -> list[str]:
    console = Console(file=io.StringIO(), width=width, **options)
    console.print(draw(view, console, height))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return [line.rstrip() for line in text.splitlines()]


def test_rates_are_of_what_was_counted_between_two_looks() -> None:
    before = _look(10.0, {"arrivals": 100, "output": 1000, "refused": 4, "first_bytes": (50, 50)})
    after = _look(
        12.0,
        {
            "arrivals": 110,
            "output": 1500,
            "refused": 6,
            "first_bytes": (60, 60),
            "engines": [_engine(state=_state(computed=3000, preempted=4))],
        },
    )
    [service] = _view(before, after).services
    assert service.requests_per_second == 5.0
    assert service.output_tokens_per_second == 250.0
    assert service.refusals_per_second == 1.0
    assert service.first_byte_p50_seconds == pytest.approx(0.05)
    [replica] = service.replicas
    assert replica.tokens_per_second == 1000.0
    assert replica.preemptions_per_second == 2.0
    assert (replica.pressure, replica.binding) == (0.9, "seats")


def test_one_look_has_no_rates() -> None:
    [service] = _view(_look(1.0, {"arrivals": 5})).services
    assert service.requests_per_second is None
    assert service.first_byte_p95_seconds is None
    assert service.replicas[0].tokens_per_second is None


def test_what_began_anew_makes_no_rate_below_nothing() -> None:
    old = _look(1.0, {"name": "g1", "arrivals": 900})
    new = _look(2.0, {"name": "g2", "arrivals": 3, "engines": [_engine(state=_state(computed=5))]})
    view = _view(old, new)
    [service] = view.services
    assert service.requests_per_second is None  # no gateway has counted twice
    assert "- requests/s" in "\n".join(_drawn(view))
    assert service.replicas[0].tokens_per_second is None


def test_an_engine_that_does_not_count_tokens_shows_none() -> None:
    engines = [_engine(state=_state(computed=None))]
    [service] = _view(_look(1.0, {"engines": engines}), _look(2.0, {"engines": engines})).services
    assert service.replicas[0].tokens_per_second is None


def test_several_gateways_add_up_and_the_newest_state_of_an_engine_counts() -> None:
    heard = _engine(silent=0.1, state=_state(held=50))
    unheard = _engine(silent=9.0, state=_state(held=10))
    look = _look(
        1.0,
        {"name": "g1", "waiting": 2, "engines": [unheard]},
        {"name": "g2", "waiting": 3, "engines": [heard]},
    )
    [service] = _view(look).services
    assert service.queued == 5
    assert service.oldest_seconds == 2.5
    [replica] = service.replicas
    assert replica.blocks is not None
    assert replica.blocks.held == 50
    assert replica.phase == "ready"


@pytest.mark.parametrize(
    ("changes", "phase"),
    [
        ({}, "ready"),
        ({"is_leaving": True}, "leaving"),
        ({"silent_seconds": 4.0}, "away"),
        ({"state": None}, "away"),
        ({"state": _state() | {"is_draining": True}}, "draining"),
        ({"state": _state() | {"is_ready": False}}, "loading"),
    ],
)
def test_a_replica_has_one_phase(changes: dict[str, Any], phase: str) -> None:
    [service] = _view(_look(1.0, {"engines": [_engine() | changes]})).services
    assert service.replicas[0].phase == phase


def test_quantiles_are_those_of_prometheus() -> None:
    buckets = {0.1: 50.0, 0.5: 90.0, math.inf: 100.0}
    assert quantile(buckets, 0.5) == pytest.approx(0.1)
    assert quantile(buckets, 0.7) == pytest.approx(0.3)
    assert quantile(buckets, 0.99) == 0.5
    assert quantile({}, 0.5) is None
    assert quantile({0.1: 0.0, math.inf: 0.0}, 0.5) is None


@pytest.mark.parametrize(
    ("held", "cached", "expected"),
    [(0, 0, "··········"), (1, 0, "█·········"), (50, 20, "█████▒▒···"), (100, 0, "██████████")],
)
def test_a_bar_shows_held_blocks_however_few(held: int, cached: int, expected: str) -> None:
    blocks = BlockCounts(
        total=100, held=held, free=100 - held, cached=cached, reserved=held, queued=0
    )
    assert bar(blocks, 10).plain == expected


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 100, 140, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    look = _look(1.0, {"waiting": 1})
    lines = _drawn(_view(look, names=lambda _: _POD), width)
    assert max(map(len, lines)) <= width
    assert any("█" in line for line in lines[2:])


def test_narrow_terminals_lose_what_matters_least_first() -> None:
    look = _look(1.0, {})
    titles = [
        next(line for line in _drawn(_view(look), width) if line.startswith("REPLICA")).split()
        for width in (130, 60, 40)
    ]
    assert "PREEMPTED" in titles[0]
    assert "PREEMPTED" not in titles[1]
    assert {"REPLICA", "BLOCKS", "PRESSURE"} <= set(titles[1])
    assert {"REPLICA", "BLOCKS"} <= set(titles[2])


def test_of_a_long_name_the_end_is_shown() -> None:
    lines = _drawn(_view(_look(1.0, {}), names=lambda _: _POD), 45)
    assert any("x2x9z" in line for line in lines)


def test_more_replicas_than_lines_are_said() -> None:
    engines = [_engine(f"10.0.0.{number}:8000") for number in range(50)]
    lines = _drawn(_view(_look(1.0, {"engines": engines})), height=20)
    assert len(lines) == 20
    assert "more lines" in lines[-1]


class _CountingConsole(Console):
    """Counts what is drawn."""

    num_drawn = 0

    def render_lines(self, *arguments: Any, **options: Any) -> Any:
        self.num_drawn += 1
        return super().render_lines(*arguments, **options)


def test_of_hundreds_of_services_those_that_are_seen_are_drawn_and_the_others_counted() -> None:
    one, none = (_view(_look(1.0, {"engines": told})) for told in ([_engine()], []))
    many = msgspec.structs.replace(one, services=[*one.services, *none.services] * 100)
    few = msgspec.structs.replace(many, services=many.services[:20])
    consoles = [_CountingConsole(file=io.StringIO(), width=60) for _ in range(2)]
    for view, console in zip((few, many), consoles, strict=True):
        draw(view, console, 20)
    assert consoles[0].num_drawn == consoles[1].num_drawn
    whole, cut = _drawn(many, 60), _drawn(many, 60, 20)
    assert cut[:19] == whole[:19]
    assert cut[19] == f"... {len(whole) - 19} more lines: --service NAME"


def test_what_is_no_terminal_gets_no_colours_and_one_without_unicode_no_blocks() -> None:
    view = _view(_look(1.0, {}))
    assert "\x1b" not in "".join(_drawn(view))
    plain = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(file=plain, width=100)
    console.print(draw(view, console))  # a letter that is not ASCII would raise
    plain.seek(0)
    assert "###" in plain.read()


def test_one_service_can_be_chosen() -> None:
    look = _look(1.0, {})
    assert len(_view(look, chosen="chat").services) == 1
    assert len(_view(look, chosen="default/chat").services) == 1
    assert _view(look, chosen="other").services == []


class _ComesAndGoes:
    """A source whose gateway goes away, and comes back."""

    label = "http://here"

    def __init__(self) -> None:
        self.is_there = True
        self.at = 100.0

    def look(self) -> Look:
        if not self.is_there:
            raise AwayError("http://here does not answer: refused")
        return _look(self.at, {"arrivals": 1})

    def name_of(self, address: str) -> str:
        return address


def test_a_gateway_that_is_away_is_said_over_its_last_figures_until_it_is_back() -> None:
    source = _ComesAndGoes()
    watcher = Watcher(source, None, clock=lambda: 107.0)
    assert watcher.view().problem == ""

    source.is_there = False
    view = watcher.view()
    assert view.services[0].replicas[0].blocks is not None
    said = " ".join(_drawn(view)[:3])
    assert "http://here does not answer: refused; figures are 7 s old; trying again" in said

    source.is_there, source.at = True, 108.0
    assert watcher.view().problem == ""
