"""What Auto would do is told as advice, and the same advice once."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

import pytest

from quire_operator.cluster.api import ClusterApi
from quire_operator.planner.plan import plan
from quire_operator.reconciling.event_writer import EventWriter
from quire_operator.reconciling.scaling_records import ScalingRecords
from quire_operator.resource.status import ReplicasOn, ScalingDecision
from quire_operator.scaling.decision import ServiceDecision
from tests.unit.control.builders import L4, NOW, SETTINGS, Cluster, with_status
from tests.unit.control.builders import service as service_of

DECISION = ScalingDecision(
    time="2026-01-01T00:00:00Z",
    before=(ReplicasOn(name="l4", replicas=1),),
    after=(ReplicasOn(name="l4", replicas=2),),
    reason="load would be 146 % of the target",
)


@pytest.mark.parametrize(
    ("mode", "reason"), [("Auto", "Scaled"), ("Recommend", "ScalingRecommended")]
)
def test_an_event_says_whether_anything_was_scaled(mode: str, reason: str) -> None:
    cluster = Cluster(service_of(L4, scaling={"mode": mode}), {"l4": 9})
    cluster.settle()
    made = plan(replace(cluster.observe(), last_scaling=DECISION), SETTINGS, NOW)

    found = [one for one in made.events if one.reason in ("Scaled", "ScalingRecommended")]
    assert [one.reason for one in found] == [reason]
    assert "l4 1 -> 2" in found[0].message
    assert ("would" in found[0].message.partition(":")[0]) == (mode == "Recommend")


def advised(number: int) -> ServiceDecision:
    """Auto would have so many."""
    return ServiceDecision(
        key="models/chat", action="Hold", replicas={"l4": 1}, wanted={"l4": number}, reason="so"
    )


def test_advice_that_the_status_has_is_no_news_to_another_operator() -> None:
    cluster = Cluster(service_of(L4, scaling={"mode": "Recommend"}), {"l4": 9})
    cluster.settle()
    first = ScalingRecords()
    assert first.take(cluster.observe(), advised(2), NOW).record is not None
    assert first.take(cluster.observe(), advised(2), NOW).record is None
    made = plan(first.add_to(cluster.observe()), SETTINGS, NOW)
    cluster.service = with_status(cluster.service, made)

    assert ScalingRecords().take(cluster.observe(), advised(2), NOW).record is None
    assert ScalingRecords().take(cluster.observe(), advised(3), NOW).record is not None


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_advice_that_goes_to_and_fro_is_told_once_an_hour() -> None:
    clock = Clock()
    writer = EventWriter(cast("ClusterApi", None), clock)
    cluster = Cluster(service_of(L4, scaling={"mode": "Recommend"}), {"l4": 9})
    now = datetime(2026, 1, 1, tzinfo=UTC)
    cluster.settle()

    def advise(number: int) -> None:
        after = (ReplicasOn(name="l4", replicas=number),)
        seen = replace(cluster.observe(), last_scaling=_replaced(after))
        made = plan(seen, SETTINGS, NOW)
        writer.post(cluster.service, made.events, now)
        cluster.service = with_status(cluster.service, made)

    for _ in range(5):
        advise(2)
        advise(3)
    told = writer.num_unposted
    clock.now = 3601
    advise(2)

    assert told == 2
    assert writer.num_unposted == 3


def _replaced(after: tuple[ReplicasOn, ...]) -> ScalingDecision:
    return ScalingDecision(time=DECISION.time, before=DECISION.before, after=after, reason="so")
