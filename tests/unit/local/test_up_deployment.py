"""Engines are replaced without a gap, and as many are there as are wanted."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from quire_local.up.deployment import Member, next_step, observe, surge_and_gap
from quire_operator.planner.deployment import Rollout, deployment
from quire_operator.planner.observed import Observed
from quire_operator.planner.settings import PlannerSettings
from quire_operator.resource.reading import read
from tests.cluster.services import SMALL

BOOLEANS = st.booleans()


def member(number: int, *, is_current: bool = True, is_ready: bool = True) -> Member:
    return Member(name=f"e-{number}", is_current=is_current, is_ready=is_ready, number=number)


def test_engines_are_started_and_ended_to_the_number_that_is_wanted() -> None:
    assert next_step(2, [], surge=1, gap=0).num_new == 2
    three = [member(number) for number in (1, 2, 3)]
    assert next_step(1, three, surge=1, gap=0).leaving == ("e-3", "e-2")
    assert next_step(0, three, surge=1, gap=0).leaving == ("e-1", "e-2", "e-3")


def test_those_that_are_not_ready_go_first() -> None:
    engines = [member(1, is_ready=False), member(2), member(3)]
    assert next_step(2, engines, surge=1, gap=0).leaving == ("e-1",)


def test_an_old_engine_that_serves_nobody_makes_room_at_once() -> None:
    step = next_step(1, [member(1, is_current=False, is_ready=False)], surge=0, gap=1)
    assert (step.num_new, step.leaving) == (1, ("e-1",))


@given(
    replicas=st.integers(1, 4),
    num_old=st.integers(0, 5),
    is_one_by_one=st.booleans(),
    data=st.data(),
)
def test_a_rollout_ends_and_keeps_to_its_bounds(
    replicas: int, num_old: int, is_one_by_one: bool, data: st.DataObject
) -> None:
    surge, gap = (0, 1) if is_one_by_one else (1, 0)
    engines = [member(number, is_current=False) for number in range(num_old)]
    number = num_old
    for _ in range(40):
        step = next_step(replicas, engines, surge=surge, gap=gap)
        before = sum(one.is_ready for one in engines)
        engines = [one for one in engines if one.name not in step.leaving]
        after = sum(one.is_ready for one in engines)
        assert after >= min(before, replicas - gap)
        for _ in range(step.num_new):
            engines.append(member(number, is_ready=False))
            number += 1
        assert len(engines) <= max(replicas + surge, num_old)
        waiting = [one for one in engines if not one.is_ready]
        becomes_ready: bool = data.draw(BOOLEANS)
        if waiting and becomes_ready:
            engines = [replace(one, is_ready=True) if one is waiting[0] else one for one in engines]
        elif not waiting and not step.num_new and not step.leaving:
            break
    engines = [replace(one, is_ready=True) for one in engines]
    while (step := next_step(replicas, engines, surge=surge, gap=gap)) != next_step(
        replicas, [member(n) for n in range(replicas)], surge=surge, gap=gap
    ):
        engines = [one for one in engines if one.name not in step.leaving]
        engines += [member(number + n) for n in range(step.num_new)]
        number += step.num_new
    assert [one.is_current for one in engines] == [True] * replicas


def test_the_planner_sees_what_a_cluster_would_show_it() -> None:
    service = read(SMALL)
    body = deployment(
        Observed(service=service),
        service.spec.accelerators[0],
        2,
        PlannerSettings(engine_image=""),
        Rollout(is_one_by_one=True),
    )
    assert surge_and_gap(body) == (0, 1)
    seen = observe(body, [member(1, is_current=False), member(2, is_ready=False)])
    assert (seen.accelerator, seen.replicas, seen.is_one_by_one) == ("l4", 2, True)
    assert (seen.num_pods, seen.num_updated, seen.num_ready) == (2, 1, 1)
    assert seen.is_observed


def test_what_scaling_chose_goes_first() -> None:
    chosen, newest = replace(member(1), is_chosen=True), member(2)
    assert next_step(1, [chosen, newest], surge=1, gap=0).leaving == ("e-1",)
    assert next_step(2, [chosen, newest], surge=1, gap=0).leaving == ()
