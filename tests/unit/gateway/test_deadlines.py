"""Deadlines of many connections by one timer."""

import asyncio
from math import inf

import pytest

from quire_gateway.http.deadlines import TICK_SECONDS, Deadlines


class Holder:
    def __init__(self) -> None:
        self.due_at = self.tick = inf
        self.told = asyncio.Event()

    def on_due(self) -> None:
        self.told.set()


async def told(holder: Holder) -> None:
    async with asyncio.timeout(60):
        await holder.told.wait()


async def test_who_is_overdue_is_told_and_who_has_more_time_or_is_gone_is_not() -> None:
    deadlines = Deadlines()
    due, later, gone, none = Holder(), Holder(), Holder(), Holder()
    for holder in (later, gone, none):
        deadlines.set(holder, TICK_SECONDS / 2)
    deadlines.set(later, 3600)
    deadlines.forget(gone)
    none.due_at = inf
    deadlines.set(due, 2 * TICK_SECONDS)
    await told(due)
    assert (due.due_at, due.tick) == (inf, inf)
    assert not any(one.told.is_set() for one in (later, gone, none))


async def test_a_nearer_deadline_takes_the_place_of_a_further_one() -> None:
    deadlines, holder = Deadlines(), Holder()
    deadlines.set(holder, 3600)
    deadlines.set(holder, 0.0)
    await told(holder)
    holder.told.clear()
    deadlines.set(holder, 0.0)
    await told(holder)


async def test_who_is_told_may_set_another_deadline() -> None:
    deadlines = Deadlines()

    class Again(Holder):
        num_told = 0

        def on_due(self) -> None:
            self.num_told += 1
            if self.num_told < 3:
                deadlines.set(self, 0.0)
            else:
                self.told.set()

    holder = Again()
    deadlines.set(holder, 0.0)
    await told(holder)
    assert holder.num_told == 3


@pytest.mark.parametrize("seconds", [0.0, 1.0, 100.0])
async def test_nothing_is_kept_of_who_is_gone(seconds: float) -> None:
    deadlines = Deadlines()
    for _ in range(100):
        holder = Holder()
        deadlines.set(holder, seconds)
        deadlines.forget(holder)
    assert deadlines._buckets == {}
