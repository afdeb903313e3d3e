"""The work queue: each key once, by one worker at a time, later after failures."""

import asyncio
from dataclasses import dataclass

import pytest

from quire_operator.cluster.store import Key
from quire_operator.reconciling.queue import WorkQueue

A, B = ("ns", "a"), ("ns", "b")


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> WorkQueue:
    return WorkQueue(clock)


async def take(queue: WorkQueue) -> Key:
    async with asyncio.timeout(30):
        return await queue.take()


async def is_empty(queue: WorkQueue) -> bool:
    """Whether nobody could take anything, without waiting."""
    waiting = asyncio.ensure_future(queue.take())
    for _ in range(5):
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    return waiting.cancelled()


async def test_a_key_added_often_is_taken_once(queue: WorkQueue) -> None:
    for _ in range(3):
        queue.add(A)
    queue.add(B)

    assert [await take(queue), await take(queue)] == [A, B]
    assert await is_empty(queue)


async def test_what_changes_while_it_is_worked_on_is_looked_at_again_and_not_at_once(
    queue: WorkQueue,
) -> None:
    queue.add(A)
    assert await take(queue) == A
    queue.add(A)
    assert await is_empty(queue)  # no second worker gets it

    queue.done(A)
    assert await take(queue) == A


async def test_later_means_later_and_sooner_wins(queue: WorkQueue, clock: Clock) -> None:
    queue.add_later(A, 10)
    queue.add_later(A, 5)
    queue.add_later(A, 20)
    assert await is_empty(queue)

    clock.now = 5
    assert await take(queue) == A
    queue.done(A)
    clock.now = 30
    assert await is_empty(queue)


async def test_an_addition_replaces_the_one_for_later(queue: WorkQueue, clock: Clock) -> None:
    queue.add_later(A, 5)
    queue.add(A)
    assert await take(queue) == A
    queue.done(A)
    clock.now = 6

    assert await is_empty(queue)


async def test_failures_wait_longer_each_time_and_are_forgotten(
    queue: WorkQueue, clock: Clock
) -> None:
    delays = []
    for _ in range(12):
        queue.add(A)
        await take(queue)
        delays.append(queue.failed(A))

    assert 0.25 <= delays[0] <= 0.5
    assert delays[5] > delays[0] * 10
    assert 30 <= delays[-1] <= 60
    queue.add(A)
    await take(queue)
    queue.done(A)
    queue.add(A)
    await take(queue)
    assert queue.failed(A) <= 0.5


async def test_a_failure_keeps_what_was_added_meanwhile(queue: WorkQueue) -> None:
    queue.add(A)
    await take(queue)
    queue.add(A)
    queue.failed(A)

    assert await take(queue) == A


async def test_a_waiting_worker_wakes_up(queue: WorkQueue) -> None:
    waiting = asyncio.ensure_future(take(queue))
    await asyncio.sleep(0)
    queue.add(B)

    assert await waiting == B


async def test_all_workers_wake_up(queue: WorkQueue) -> None:
    waiting = [asyncio.ensure_future(take(queue)) for _ in range(2)]
    await asyncio.sleep(0)
    queue.add(A)
    queue.add(B)

    assert set(await asyncio.gather(*waiting)) == {A, B}
