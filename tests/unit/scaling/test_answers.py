"""How long prompts and answers are taken to be."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from quire_operator.scaling.answers import Bucket, buckets
from quire_operator.scaling.decision import ServiceMemory
from quire_operator.scaling.demand import remember
from quire_operator.scaling.inputs import GatewayFigures
from tests.unit.scaling.worlds import OUTPUT_BOUNDS, PROMPT_BOUNDS, service

BOUNDS = (PROMPT_BOUNDS, OUTPUT_BOUNDS)
ROW, SHORT, LONG = 1, 1, 3
EVERY = 5.0


def watch(columns: Iterable[dict[int, int]], row: int = ROW) -> ServiceMemory:
    """Remember answers by column, of each five seconds."""
    memory = ServiceMemory(since=0.0, last_request_at=0.0)
    ended = [[0] * (len(OUTPUT_BOUNDS) + 1) for _ in (*PROMPT_BOUNDS, 0)]
    for at, new in enumerate([{}, *columns]):
        for column, count in new.items():
            ended[row][column] += count
        memory = remember(service("l4"), (told(ended, EVERY * at),), memory, EVERY * at)
    return memory


def told(ended: list[list[int]], seconds: float) -> GatewayFigures:
    """What a gateway says of these; none has a length of its own but its bucket's."""
    return GatewayFigures(
        gateway="a",
        seconds=seconds,
        prompt_bounds=PROMPT_BOUNDS,
        output_bounds=OUTPUT_BOUNDS,
        arrivals=tuple(map(sum, ended)),
        ended=tuple(map(tuple, ended)),
        prompt_tokens=0,
        output_tokens=0,
    )


def share_of_long(found: tuple[Bucket, ...]) -> float:
    """Of the rates."""
    return sum(one.rate for one in found if one.output_tokens > OUTPUT_BOUNDS[LONG - 1])


def rates() -> tuple[float, ...]:
    """One request per second."""
    return tuple(float(row == ROW) for row in range(len(PROMPT_BOUNDS) + 1))


def test_answers_that_are_longer_now_are_soon_most() -> None:
    memory = watch([*[{SHORT: 50}] * 200, *[{LONG: 50}] * 30])
    assert share_of_long(buckets(memory, rates(), BOUNDS)) == pytest.approx(0.5, abs=0.02)


def test_a_few_that_are_longer_by_chance_are_not_believed() -> None:
    usual = [{LONG: 1} if at % 10 == 0 else {SHORT: 1} for at in range(200)]
    memory = watch([*usual, *[{LONG: 1}] * 3])
    lasting = replace(memory, recent=memory.lasting)
    assert buckets(memory, rates(), BOUNDS) == buckets(lasting, rates(), BOUNDS)
    recent = replace(memory, lasting=memory.recent)
    assert share_of_long(buckets(memory, rates(), BOUNDS)) < share_of_long(
        buckets(recent, rates(), BOUNDS)
    )


def test_longer_prompts_are_a_change_too() -> None:
    known = watch([{SHORT: 50}] * 200)
    later = watch([{LONG: 50}] * 100, row=ROW + 2)
    memory = replace(known, recent=later.recent)
    assert buckets(memory, rates(), BOUNDS) != buckets(known, rates(), BOUNDS)


def test_what_was_answered_fades() -> None:
    memory = watch([*[{SHORT: 50}] * 200, *[{}] * 30])
    for answers, left in ((memory.recent, 0.5), (memory.lasting, 0.5**0.5)):
        before = watch([{SHORT: 50}] * 200)
        known = before.recent if answers is memory.recent else before.lasting
        assert sum(map(sum, answers.ended)) == pytest.approx(left * sum(map(sum, known.ended)))


def test_nothing_answered_is_no_change() -> None:
    assert sum(one.rate for one in buckets(watch([]), rates(), BOUNDS)) == pytest.approx(1.0)
