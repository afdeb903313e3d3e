"""Charts that people can read, of runs of a moment and of days."""

import re

import pytest

from quire_local.simulate.charts import Series, line_chart


def texts(seconds: float, value: float, *, is_count: bool = False) -> list[str]:
    series = [Series(name="a", points=[(0.0, 0.0), (seconds, value)], hue=0)]
    return re.findall(r">([^<>]+)</text>", line_chart(series, label="a", is_count=is_count))


def test_nothing_that_waits_has_a_scale_of_whole_numbers() -> None:
    assert texts(45.0, 0.0, is_count=True)[:5] == ["0", "1", "2", "3", "4"]
    assert texts(45.0, 10.0, is_count=True)[:5] == ["0", "3", "6", "9", "12"]
    assert texts(45.0, 40_000.0, is_count=True)[:5] == ["0", "10000", "20000", "30000", "40000"]


@pytest.mark.parametrize(
    ("seconds", "times"),
    [
        (1.0, ["0 s", "1 s"]),
        (45.0, ["0 s", "10 s", "20 s", "30 s", "40 s"]),
        (1203.0, ["0 min", "5 min", "10 min", "15 min", "20 min"]),
        (86_400.0, ["0 h", "6 h", "12 h", "18 h", "24 h"]),
        (31 * 86_400.0, ["0 h", "144 h", "288 h", "432 h", "576 h", "720 h"]),
    ],
)
def test_times_are_round(seconds: float, times: list[str]) -> None:
    assert texts(seconds, 1.0)[5:] == times
