"""Who waits, who is next."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from quire_gateway.choosing.queue import FairQueue, Waiting


def waiting(key: str, *, cost: float = 1.0, background: bool = False, at: float = 0.0) -> Waiting:
    return Waiting(key=key, is_background=background, cost=cost, arrived_at=at, leaves_at=at + 10.0)


def drain(queue: FairQueue) -> list[Waiting]:
    order = []
    while len(queue):
        (head,) = queue.heads(1)
        queue.take(head)
        order.append(head)
    return order


def test_interactive_requests_go_first() -> None:
    queue = FairQueue(10)
    late, early = waiting("a"), waiting("a", background=True)
    queue.add(early)
    queue.add(late)
    assert drain(queue) == [late, early]


def test_a_flood_of_one_key_does_not_hold_up_another() -> None:
    queue = FairQueue(1000)
    for _ in range(100):
        queue.add(waiting("flood"))
    for _ in range(10):
        queue.add(waiting("few"))
    first = Counter(one.key for one in drain(queue)[:20])
    assert first == {"flood": 10, "few": 10}


def test_fair_is_by_cost() -> None:
    queue = FairQueue(1000)
    for _ in range(100):
        queue.add(waiting("big", cost=9.0))
        queue.add(waiting("small", cost=1.0))
    first = Counter(one.key for one in drain(queue)[:50])
    assert first["small"] == pytest.approx(9 * first["big"], abs=9)


def test_nobody_gains_by_leaving_and_coming_again() -> None:
    queue = FairQueue(1000)
    for _ in range(100):
        queue.add(waiting("patient"))
    served: Counter[str] = Counter()
    for _ in range(40):
        if not any(one.key == "hasty" for one in queue):
            queue.add(waiting("hasty"))
        (head,) = queue.heads(1)
        queue.take(head)
        served[str(head.key)] += 1
    assert abs(served["hasty"] - served["patient"]) <= 1


def test_behind_the_first_of_each_key_others_are_looked_at() -> None:
    queue = FairQueue(10)
    of_a = [waiting("a") for _ in range(4)]
    of_b = [waiting("b") for _ in range(2)]
    later = waiting("a", background=True)
    for one in (*of_a, later, *of_b):
        queue.add(one)
    assert queue.heads(2) == [of_a[0], of_b[0]]
    assert queue.heads(5) == [of_a[0], of_b[0], of_a[1], of_b[1], later]
    assert queue.heads(20) == [of_a[0], of_b[0], of_a[1], of_b[1], of_a[2], of_a[3], later]


class QueueHistories(RuleBasedStateMachine):
    """Requests that come, get their turn, give up or are overdue."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = FairQueue(8)
        self.inside: list[Waiting] = []
        self.now = 0.0

    @precondition(lambda self: not self.queue.is_full)
    @rule(key=st.sampled_from("abc"), cost=st.integers(1, 9), background=st.booleans())
    def add(self, key: str, cost: int, background: bool) -> None:
        self.now += 1.0
        one = waiting(key, cost=float(cost), background=background, at=self.now)
        self.queue.add(one)
        self.inside.append(one)

    @precondition(lambda self: self.inside)
    @rule(data=st.data())
    def turn(self, data: st.DataObject) -> None:
        heads = self.queue.heads(4)
        assert len(set(heads)) == len(heads) == min(len(self.inside), len(heads)) <= 4
        assert heads[0].is_background == all(one.is_background for one in self.inside)
        for line in {(head.key, head.is_background) for head in heads}:
            of_line = [one for one in heads if (one.key, one.is_background) == line]
            inside = [one for one in self.inside if (one.key, one.is_background) == line]
            assert of_line == inside[: len(of_line)]
        chosen = data.draw(st.sampled_from(heads))
        self.queue.take(chosen)
        self.inside.remove(chosen)

    @precondition(lambda self: self.inside)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.inside))
        self.queue.remove(one)
        self.inside.remove(one)

    @rule()
    def expire(self) -> None:
        self.now += 2.0
        late = self.queue.overdue(self.now)
        assert set(late) == {one for one in self.inside if one.leaves_at <= self.now}
        for one in late:
            self.queue.remove(one)
            self.inside.remove(one)

    @invariant()
    def counts_are_right(self) -> None:
        assert len(self.queue) == len(self.inside) == len(list(self.queue))
        assert self.queue.total_cost == sum(one.cost for one in self.inside)
        assert self.queue.next_leaves_at() == min(
            (one.leaves_at for one in self.inside), default=None
        )


TestQueueHistories = QueueHistories.TestCase
TestQueueHistories.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
