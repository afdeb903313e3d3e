"""What was taken away too soon is held for, once that has happened twice."""

from dataclasses import replace

import pytest

from quire_operator.scaling.case import Case, Step
from quire_operator.scaling.caution import learn
from quire_operator.scaling.decision import Caution
from quire_operator.scaling.fleet import see_fleet
from quire_operator.scaling.hearing import hear
from quire_operator.scaling.preparing import Seen, prepare
from tests.unit.scaling.worlds import World, service

DOWN_SECONDS = 300.0
BROKEN, KEPT = (80.0, 20.0), (100.0, 0.0)


def a_case() -> Case:
    """Of a service whose traffic has been watched for a window."""
    world = World(service("l4"), rate=2.0, ordered={"l4": 2})
    world.run(400)
    inputs = world.inputs()
    seen = inputs.services[0]
    case, _ = prepare(
        Seen(
            service=seen,
            now=world.now,
            heard=hear(seen, {}, inputs),
            fleet=see_fleet(seen, {}),
            rooms=(),
            is_between=True,
        ),
        world.memory.services[seen.key],
    )
    return case


def go_down_and_up(times: int, kept: tuple[float, float]) -> tuple[Case, Caution]:
    """Take away and order again a minute later, every two minutes."""
    case, caution = a_case(), Caution()
    for _ in range(times):
        for action in ("Down", "Up"):
            step = Step(action=action, replicas={"l4": 2}, reason="")
            caution = learn(case, step, replace(caution, kept=kept))
            case = replace(case, now=case.now + 60.0)
    return case, caution


@pytest.mark.parametrize(
    ("times", "kept", "is_held"),
    [(1, BROKEN, False), (2, BROKEN, True), (3, KEPT, False)],
)
def test_what_is_needed_again_twice_is_held_for_if_promises_are_broken(
    times: int, kept: tuple[float, float], is_held: bool
) -> None:
    case, caution = go_down_and_up(times, kept)
    held = replace(case, memory=replace(case.memory, caution=caution)).why_not_down()
    assert ("needed again" in held) == is_held, held


def test_what_was_held_for_is_forgotten() -> None:
    case, caution = go_down_and_up(3, BROKEN)
    assert caution.windows == 4.0
    for _ in range(60):
        case = replace(case, now=case.now + DOWN_SECONDS)
        caution = learn(case, case.hold(""), replace(caution, kept=KEPT))
    assert caution.windows == Caution().windows
