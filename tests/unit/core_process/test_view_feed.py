"""When views are made, and for whom."""

import pytest

from quire_engine.core.view_feed import HEARTBEAT_SECONDS, INTERVAL_SECONDS, MAX_SHARE, ViewFeed
from quire_engine.protocol.messages import CoreView
from tests.unit.core_process.views import make_view


class Room:
    """A clock, a core that counts how often it is described, and what is sent."""

    def __init__(self) -> None:
        self.now = 100.0
        self.num_described = 0
        self.cost_seconds = 0.0
        self.sent: list[tuple[str, CoreView]] = []
        self.feed = ViewFeed(
            self.describe, lambda client, view: self.sent.append((client, view)), lambda: self.now
        )

    def describe(self, now: float) -> CoreView:
        self.num_described += 1
        self.now += self.cost_seconds
        return make_view(now)

    def step(self, seconds: float) -> None:
        started_at = self.now
        self.now += seconds
        self.feed.count_step(started_at)
        self.feed.send_if_due()


@pytest.fixture
def room() -> Room:
    return Room()


def test_nothing_is_described_for_nobody(room: Room) -> None:
    for _ in range(100):
        room.step(0.1)

    assert room.num_described == 0
    assert room.feed.seconds_left(room.now) == float("inf")


def test_who_begins_to_watch_sees_something_at_once_and_nothing_after_the_end(room: Room) -> None:
    room.feed.watch("api", is_on=True)
    room.feed.send_if_due()
    assert [client for client, _ in room.sent] == ["api"]

    room.feed.watch("api", is_on=False)
    room.step(10.0)
    assert len(room.sent) == room.num_described == 1


def test_a_busy_core_is_described_four_times_a_second(room: Room) -> None:
    room.feed.watch("api", is_on=True)
    for _ in range(1000):
        room.step(0.01)

    assert room.num_described == pytest.approx(10 / INTERVAL_SECONDS, abs=2)


def test_an_idle_core_is_described_once_a_second(room: Room) -> None:
    room.feed.watch("api", is_on=True)
    room.feed.send_if_due()

    assert room.feed.seconds_left(room.now) == pytest.approx(HEARTBEAT_SECONDS)
    room.feed.mark_changed()
    assert room.feed.seconds_left(room.now) == pytest.approx(INTERVAL_SECONDS)


def test_views_that_take_long_come_seldom(room: Room) -> None:
    room.cost_seconds = 0.05
    room.feed.watch("api", is_on=True)
    started_at = room.now
    for _ in range(3000):
        room.step(0.01)

    share = room.num_described * room.cost_seconds / (room.now - started_at)
    assert share == pytest.approx(MAX_SHARE, rel=0.2)


def test_all_that_watch_get_one_description(room: Room) -> None:
    room.feed.watch("one", is_on=True)
    room.feed.watch("two", is_on=True)
    room.feed.send_if_due()

    assert sorted(client for client, _ in room.sent) == ["one", "two"]
    assert room.num_described == 1


def test_steps_are_timed_while_somebody_watches(room: Room) -> None:
    room.step(5.0)
    room.feed.watch("api", is_on=True)
    for _ in range(4):
        room.step(0.25)

    _, view = room.sent[-1]
    assert view.num_steps == 4
    assert view.busy_seconds == pytest.approx(1.0)
