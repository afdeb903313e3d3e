"""What the operator logs while something keeps going wrong."""

import logging

from quire_operator.logs import Sparing, of


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def record(line: int = 7, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("kopf", level, "api.py", line, "attempt %d failed", (3,), None)


def shown(sparing: Sparing, times: int, line: int = 7, level: int = logging.WARNING) -> list[str]:
    records = [record(line, level) for _ in range(times)]
    return [one.getMessage() for one in records if sparing.filter(one)]


def test_a_warning_that_repeats_itself_is_shown_now_and_then_with_the_number_of_the_others() -> (
    None
):
    clock = Clock()
    sparing = Sparing(clock)
    assert shown(sparing, 50) == ["attempt 3 failed"] * 5

    clock.now += 61
    assert shown(sparing, 9) == ["attempt 3 failed (and 45 more like it)"]
    clock.now += 61
    assert shown(sparing, 1) == ["attempt 3 failed (and 8 more like it)"]


def test_another_line_of_code_and_what_is_no_warning_are_shown() -> None:
    sparing = Sparing(Clock())
    shown(sparing, 50)

    assert len(shown(sparing, 5, line=8)) == 5
    assert len(shown(sparing, 50, level=logging.INFO)) == 50


def test_after_a_quiet_time_it_begins_anew() -> None:
    clock = Clock()
    sparing = Sparing(clock)
    shown(sparing, 3)
    clock.now += 61

    assert len(shown(sparing, 50)) == 5


def test_a_noisy_service_hides_no_other() -> None:
    clock = Clock()
    sparing = Sparing(clock)

    def num_shown(name: str, times: int) -> int:
        records = [record() for _ in range(times)]
        for one in records:
            one.__dict__ |= of(("models", name))
        return sum(map(sparing.filter, records))

    assert num_shown("noisy", 500) == 1
    assert num_shown("other", 1) == 1
    clock.now += 601
    assert num_shown("noisy", 2) == 1
