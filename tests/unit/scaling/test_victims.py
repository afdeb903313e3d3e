"""Which replicas go first."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from quire_operator.scaling.clamping import Limit
from quire_operator.scaling.inputs import EngineFigures, Replica
from quire_operator.scaling.victims import choose_victims, next_victims


def replica(name: str, held: int | None = 0, accelerator: str = "l4", **fields: bool) -> Replica:
    """One that holds so many blocks; None: it is not heard."""
    engine = EngineFigures(age_seconds=0.5, pressure=0.5, num_held_blocks=held or 0)
    made = Replica(name=name, accelerator=accelerator, engine=None if held is None else engine)
    return replace(made, **fields)  # type: ignore[arg-type]  # booleans, all


def limit(name: str, cost: float) -> Limit:
    return Limit(name=name, cost=cost, lowest=0, highest=10)


BUSY, IDLE, UNHEARD = replica("busy", 500), replica("idle", 3), replica("unheard", None)
STARTING = replica("starting", None, is_ready=False)
WAITING = replica("waiting", None, is_ready=False, is_scheduled=False)
FAILING = replica("failing", None, is_ready=False, is_failing=True)


def test_what_serves_nobody_goes_first_then_who_holds_least_and_the_unheard_last() -> None:
    there = [UNHEARD, BUSY, IDLE, STARTING, WAITING, FAILING]
    order = ["failing", "waiting", "starting", "idle", "busy", "unheard"]
    for left in range(len(there) + 1):
        found = choose_victims(there, {"l4": len(there)}, {"l4": left})
        assert list(found) == order[: len(there) - left]


def test_what_was_ordered_and_is_not_there_needs_no_victim() -> None:
    assert choose_victims([BUSY, IDLE], {"l4": 4}, {"l4": 2}) == ()
    assert choose_victims([BUSY, IDLE], {"l4": 4}, {"l4": 1}) == ("idle",)


def test_one_beside_those_ordered_is_none_of_ours_to_take() -> None:
    # a rollout has made one more than was ordered: its controller takes it away
    assert choose_victims([BUSY, IDLE, STARTING], {"l4": 2}, {"l4": 2}) == ()
    assert choose_victims([BUSY, IDLE, STARTING], {"l4": 2}, {"l4": 1}) == ("starting",)


def test_one_that_ends_is_no_victim_again() -> None:
    ending = replace(IDLE, is_ending=True)
    assert choose_victims([BUSY, ending], {"l4": 1}, {"l4": 0}) == ("busy",)
    assert next_victims([ending], ["l4"], [limit("l4", 1.0)]) == []


def test_an_accelerator_that_is_not_wanted_any_more_loses_all() -> None:
    other = replica("other", 1, accelerator="t4")
    assert choose_victims([BUSY, IDLE, other], {"l4": 2, "t4": 1}, {"l4": 2}) == ("other",)


def test_of_those_that_serve_the_dearest_comes_first_but_after_what_serves_nobody() -> None:
    dear = replica("dear", 900, accelerator="h100")
    limits = [limit("l4", 0.8), limit("h100", 7.5)]
    found = next_victims([BUSY, IDLE, dear], ["l4", "h100"], limits)
    assert [one.name for one in found] == ["dear", "idle"]
    found = next_victims([BUSY, STARTING, dear], ["l4", "h100"], limits)
    assert [one.name for one in found] == ["starting", "dear"]
    assert next_victims([BUSY, dear], [], limits) == []


@given(
    helds=st.lists(st.integers(0, 1000) | st.none(), max_size=8),
    wanted=st.integers(0, 8),
)
def test_who_stays_never_holds_less_than_who_goes(helds: list[int | None], wanted: int) -> None:
    there = [replica(f"r{at}", held) for at, held in enumerate(helds)]
    found = choose_victims(there, {"l4": len(there)}, {"l4": wanted})
    assert len(found) == max(len(there) - wanted, 0)
    worth = {
        one.name: 1001 if held is None else held for one, held in zip(there, helds, strict=True)
    }
    gone = [worth.pop(name) for name in found]
    assert not gone or not worth or max(gone) <= min(worth.values())
