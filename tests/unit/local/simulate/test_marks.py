"""What happened, as marks below the time axis and in the list: nothing is lost, nothing covered."""

import re
from itertools import pairwise

import pytest

from quire_local.simulate.marks import Moment, fault_times, mark_strip, moments_of
from quire_local.simulate.page import write_page
from quire_local.simulate.results import SimulationResult
from quire_local.simulate.simulation import simulate
from tests.unit.local.simulate.builders import Scripted, engine_types, scenario, traffic


def run(*events: str, changes: int = 0, **fields: float) -> SimulationResult:
    """Three and two replicas, and so many changes from second 2 on."""
    script = {0.0: {"l4": 3, "a100-80": 2}}
    script |= {2.0 + at: {"l4": 4 - at % 2, "a100-80": 2} for at in range(changes)}
    types = engine_types("l4", "a100-80", start_seconds=5.0)
    asked = scenario(traffic(80.0, 2.0), types, events=events, **fields)
    return simulate(asked, Scripted(script))


def test_faults_are_told_with_how_many_they_met() -> None:
    result = run(
        "10:kill:l4:0.5",
        "20:silence:a100-80",
        "21:silence:gateways",
        "22:speak:gateways",
        "23:speak:a100-80:0.5",
        "30:reclaim:a100-80:0.5",
        "50:vanish:l4",
        "51:vanish:l4",
        "60:return:l4",
    )
    assert [(one.at, one.what) for one in result.faults] == [
        (10.0, "2 l4 died"),
        (20.0, "nothing is heard of 2 a100-80 any more"),
        (21.0, "nothing is heard of the gateways any more"),
        (22.0, "the gateways can be heard again"),
        (23.0, "1 a100-80 can be heard again"),
        (30.0, "the cloud wants 1 a100-80 back, in 30 s"),
        (50.0, "the nodes of l4 are gone: 3 l4 died"),
        (51.0, "the nodes of l4 are gone: no l4 died"),
        (60.0, "nodes of l4 are back"),
    ]


def test_faults_by_chance_are_told_once_for_each_replica_that_they_met() -> None:
    result = run(fail_hours=0.01)
    names = [one.what.removesuffix(" died") for one in result.faults]
    assert len(names) == len(set(names)) == result.num_deaths > 0
    [kind] = engine_types("l4", spot_hours=0.01)
    reclaimed = simulate(scenario(traffic(80.0, 2.0), [kind]), Scripted({0.0: {"l4": 4}}))
    told = [one.what for one in reclaimed.faults]
    assert told
    assert all(re.fullmatch(r"the cloud wants l4-\d+ back, in 30 s", one) for one in told)


def marks(drawn: str) -> list[tuple[str, float, str]]:
    """Each mark's kind, place and words."""
    found = re.findall(
        r'<g class="moment-(\w+)".*?<title>(.*?)</title><(?:circle cx|polygon points)="([\d.]+)',
        drawn,
        re.DOTALL,
    )
    return [(kind, float(place), words) for kind, words, place in found]


def test_a_mark_tells_what_happened_and_why_at_its_time() -> None:
    result = run("40:kill:l4", changes=1)
    [change, fault] = moments_of(result)
    strip = mark_strip([change, fault], last=80.0, label="a")
    by_kind = {kind: (place, words) for kind, place, words in marks(strip)}
    assert by_kind["fault"][1] == "40 s, 4 l4 died"
    ordered = "2 s, l4\N{NO-BREAK SPACE}4, a100-80\N{NO-BREAK SPACE}2: the script"
    assert by_kind["change"][1] == ordered
    middle = (62 + 640 - 8) / 2  # between the chart's edges
    assert by_kind["fault"][0] == pytest.approx(middle, abs=7.5)
    assert "<polygon" in strip
    assert "<circle" in strip  # kinds differ by shape
    assert mark_strip([], last=80.0, label="a") == ""


def test_marks_that_would_lie_on_each_other_are_one_that_tells_of_all() -> None:
    moments = [Moment(at=at * 0.5, kind="change", what=f"n{at}", reason="r") for at in range(400)]
    found = marks(mark_strip(moments, last=200.0, label="a"))
    places = [place for _, place, _ in found]
    assert 10 < len(found) < 60
    assert all(after - before >= 14.0 - 0.2 for before, after in pairwise(places))
    assert all(62 <= place <= 640 - 6 for place in places)
    told = sum(words.count("\n") + 1 for _, _, words in found)
    unsaid = sum(int(more) - 1 for more in re.findall(r"and (\d+) more until", str(found)))
    assert told + unsaid == len(moments)
    assert "0 s, n0: r\n" in found[0][2]


def test_a_line_for_each_mark_of_a_fault_and_none_for_changes() -> None:
    faults = [Moment(at=at, kind="fault", what="died") for at in (5.0, 5.1, 50.0, 99.0)]
    changes = [Moment(at=20.0, kind="change", what="l4 2")]
    assert fault_times([*faults, *changes], 100.0) == [5.0, 50.0, 99.0]


def page_of(result: SimulationResult) -> str:
    return write_page([result], title="a", remarks=[], settings={})


def test_the_first_hundred_are_listed() -> None:
    result = run("3:kill:l4:0.1", changes=70)
    rows = re.findall(r"<tr><td>(\d+) s</td><td><i class=\"sign-(\w+)\"", page_of(result))
    assert len(rows) == len(result.decisions) + 1 < 100
    assert ("3", "fault") in rows
    assert [int(at) for at, _ in rows] == sorted(int(at) for at, _ in rows)
    many = run(*(f"{at / 2}:silence:l4" for at in range(150)), changes=5)
    page = page_of(many)
    assert page.count('<td><i class="sign-') == 100
    assert f"and {len(many.decisions) + 150 - 100} more, which --json has" in page


def test_where_nothing_happens_there_are_no_marks() -> None:
    page = page_of(run())
    assert "Nothing was changed, and nothing broke." in page
    assert '<g class="moment-' not in page
    assert 'class="moment"' not in page
