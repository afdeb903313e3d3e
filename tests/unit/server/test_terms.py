"""Request headers: what is taken, what is refused, and in which words."""

import math
from typing import Any

import pytest
from starlette.datastructures import Headers

from quire_engine.protocol.messages import BlockCounts, CoreStats, Priority, Thresholds
from quire_engine.server.cost_hint import CostHint, read_cost_hint, refuse_hopeless
from quire_engine.server.errors import ApiError
from quire_engine.server.terms import RequestTerms, read_terms


def read(**headers: str) -> RequestTerms:
    return read_terms(
        Headers({f"x-quire-{name.replace('_', '-')}": text for name, text in headers.items()})
    )


def test_no_headers_are_the_defaults() -> None:
    assert read() == RequestTerms()


@pytest.mark.parametrize(
    ("header", "value", "field", "expected"),
    [
        ("priority", "background", "priority", Priority.BACKGROUND),
        ("priority", "interactive", "priority", Priority.INTERACTIVE),
        ("deadline_ms", "1500", "deadline_seconds", 1.5),
        ("admit", "now", "starts_now", True),
        ("admit", "wait", "holds_room", True),
        ("admit", "wait", "starts_now", False),
        ("cost_hint", "blocks=12", "cost_hint", CostHint(blocks=12)),
        ("cost_hint", "blocks=1.5; tokens=40", "cost_hint", CostHint(1.5, 40)),
        ("cost_hint", '{"tokens": 40}', "cost_hint", CostHint(tokens=40)),
        ("prefix", "AB12cd34, 00000000", "prefix_chunks", ("ab12cd34", "00000000")),
        ("gateway", "gw-1;42", "gateway_counter", 42),
        ("gateway", "gw-1;42", "gateway", "gw-1"),
        ("gateway", f"gw;{2**53}", "gateway_counter", 2**53),
        ("salt", "tenant-7", "cache_salt", "tenant-7"),
    ],
)
def test_headers_are_read(header: str, value: str, field: str, expected: Any) -> None:
    assert getattr(read(**{header: value}), field) == expected


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("priority", "urgent"),
        ("priority", ""),
        ("priority", "0"),
        ("deadline-ms", "0"),
        ("deadline-ms", "-5"),
        ("deadline-ms", "1.5"),
        ("deadline-ms", "nan"),
        ("deadline-ms", str(2**53 + 1)),
        ("deadline-ms", "9" * 4000),
        ("deadline-ms", "١٢"),
        ("admit", "later"),
        ("cost-hint", "-1"),
        ("cost-hint", "blocks=-1"),
        ("cost-hint", "blocks=nan"),
        ("cost-hint", "blocks=inf"),
        ("cost-hint", f"blocks={2**54}"),
        ("cost-hint", "block=3"),
        ("cost-hint", '{"blocks": "many"}'),
        ("cost-hint", "{" * 4000),
        ("cost-hint", '{"blocks":' + "[" * 4000),
        ("prefix", ""),
        ("prefix", "xyz"),
        ("prefix", "abcd"),
        ("prefix", "a" * 65),
        ("prefix", ",".join(["abcdef01"] * 257)),
        ("gateway", "gw"),
        ("gateway", "gw;-1"),
        ("gateway", f"gw;{2**53 + 1}"),
        ("gateway", "g" * 65 + ";1"),
        ("gateway", "g w;1"),
        ("salt", "a b"),
        ("salt", "s" * 257),
    ],
)
def test_a_malformed_header_is_named_with_what_it_takes(header: str, value: str) -> None:
    raw = [(f"x-quire-{header}".encode(), value.encode())]
    with pytest.raises(ApiError, match=f"x-quire-{header}: is malformed; it takes ") as caught:
        read_terms(Headers(raw=raw))

    assert caught.value.status == 400
    assert caught.value.param == f"x-quire-{header}"
    assert len(caught.value.message) < 200


def test_a_header_that_comes_twice_is_refused() -> None:
    raw = [(b"x-quire-priority", b"background"), (b"x-quire-priority", b"interactive")]
    with pytest.raises(ApiError, match="x-quire-priority"):
        read_terms(Headers(raw=raw))


@pytest.mark.parametrize(
    ("header", "body", "expected"),
    [
        (None, None, Priority.INTERACTIVE),
        (None, 0, Priority.INTERACTIVE),
        (None, -3, Priority.INTERACTIVE),
        (None, 1, Priority.BACKGROUND),
        (Priority.INTERACTIVE, 5, Priority.INTERACTIVE),
        (Priority.BACKGROUND, -5, Priority.BACKGROUND),
    ],
)
def test_the_header_wins_over_the_bodys_number(
    header: Priority | None, body: int | None, expected: Priority
) -> None:
    assert RequestTerms(priority=header).priority_with(body) is expected


def judge(hint: CostHint, *, running: int = 1, num_yielding: int = 0, **changes: Any) -> int:
    """The status that a hint is refused with, 0 if it is not; 40 of 64 blocks are reserved."""
    blocks = BlockCounts(
        total=64, held=30, free=34, cached=0, reserved=40, queued=0, yielding=num_yielding
    )
    stats = CoreStats(
        blocks=blocks,
        num_running=running,
        num_waiting=0,
        num_filled_tokens=0,
        num_steps=0,
        num_preemptions=0,
        num_recomputed_tokens=0,
        num_prefix_queries=0,
        num_prefix_hits=0,
        num_evictions=0,
        num_scheduled_tokens=0,
    )
    limits = Thresholds(
        admission=1.0, background=0.75, max_queue_seconds=1.0, max_waiting_requests=1
    )
    options = {"priority": Priority.INTERACTIVE, "starts_now": True} | changes
    try:
        refuse_hopeless(hint, block_size=16, stats=stats, thresholds=limits, **options)
    except ApiError as error:
        return error.status
    return 0


def test_only_what_is_hopeless_by_its_hint_is_refused() -> None:
    assert judge(CostHint(blocks=24)) == 0
    assert judge(CostHint(blocks=25)) == 429
    assert judge(CostHint(tokens=24 * 16 + 1)) == 429
    assert judge(CostHint(blocks=8), priority=Priority.BACKGROUND) == 0
    assert judge(CostHint(blocks=9), priority=Priority.BACKGROUND) == 429
    assert judge(CostHint(blocks=25), starts_now=False) == 0
    assert judge(CostHint(blocks=25), running=0) == 0  # an empty engine takes any request
    assert judge(CostHint(blocks=65), starts_now=False, running=0) == 400
    assert judge(CostHint(blocks=2.0**53)) == 400


def test_blocks_that_background_requests_give_up_are_room_for_interactive_ones() -> None:
    assert judge(CostHint(blocks=34), num_yielding=10) == 0
    assert judge(CostHint(blocks=35), num_yielding=10) == 429
    assert judge(CostHint(blocks=9), num_yielding=10, priority=Priority.BACKGROUND) == 429


def test_a_hint_of_nothing_is_harmless() -> None:
    assert read_cost_hint("blocks=0") == CostHint()
    assert judge(CostHint()) == 0
    assert CostHint(blocks=0.2).num_blocks(16) == 1
    assert math.isfinite(CostHint(tokens=2.0**53).num_blocks(16))
