"""How long prompts and answers are taken to be."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from quire_operator.scaling.answers import Bucket, buckets, note_lengths
from quire_operator.scaling.decision import Sample, ServiceMemory
from quire_operator.scaling.demand import estimate, remember
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


@pytest.mark.parametrize(("num_long", "mean"), [(2, 300.0), (400, 1425.0)])
def test_prompts_that_come_are_as_those_answered_unless_they_surely_are_not(
    num_long: int, mean: float
) -> None:
    """Answers come later: of long prompts that begin to come there are none yet.

    Those of 300 tokens are 1.17 of what is typical of their bucket; 400 of 1,600 are of one whose
    typical length is 4,096.
    """
    memory = ServiceMemory(since=0.0, last_request_at=0.0)
    for at in range(100):
        ended = [[0] * (len(OUTPUT_BOUNDS) + 1) for _ in (*PROMPT_BOUNDS, 0)]
        ended[ROW][SHORT] = 20 * at
        seen = told(ended, EVERY * at)
        arrivals = [*seen.arrivals]
        arrivals[ROW + 2] += num_long if at >= 90 else 0
        seen = replace(
            seen,
            arrivals=tuple(arrivals),
            prompt_tokens=300 * 20 * at,
            output_tokens=60 * 20 * at,
        )
        memory = remember(service("l4"), (seen,), memory, EVERY * at)
    demand = estimate(memory, EVERY * 99)
    assert demand is not None
    found = buckets(note_lengths(memory, BOUNDS), demand.prompt_rates, BOUNDS)
    tokens_per_second = sum(one.rate * one.prompt_tokens for one in found)
    assert tokens_per_second / demand.rate == pytest.approx(mean, rel=0.05)


def test_prompts_that_are_never_answered_differ_all_the_time_and_not_by_turns() -> None:
    known = watch([{SHORT: 5}] * 120)
    answered = 300 / EVERY * 5

    def noted(memory: ServiceMemory, num_refused: int) -> ServiceMemory:
        """After five minutes in which so many longer ones came besides, and were refused."""
        arrivals = [0.0] * (len(PROMPT_BOUNDS) + 1)
        arrivals[ROW], arrivals[ROW - 1], arrivals[ROW + 1] = answered, 1.0, float(num_refused)
        sample = Sample(at=0.0, seconds=300.0, arrivals=tuple(arrivals))
        some = [list(row) for row in known.lasting.ended]
        some[ROW - 1][SHORT] = some[ROW + 1][SHORT] = 3.0
        answers = replace(known.lasting, ended=tuple(map(tuple, some)))
        seen = replace(memory, samples=(sample,), recent=answers, lasting=answers)
        return note_lengths(seen, BOUNDS)

    least = next(num for num in range(1000) if noted(known, num).are_others)
    never = noted(known, least - 1)
    assert not never.are_others
    differ = noted(never, 2 * least)
    assert noted(differ, least - 1).are_others
    assert not noted(differ, 0).are_others
