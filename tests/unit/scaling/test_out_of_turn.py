"""A service whose spec has changed is decided between two rounds, and nobody else is."""

from dataclasses import replace

from quire_operator.scaling.decide import decide
from quire_operator.scaling.decision import ScalingMemory
from quire_operator.scaling.demand import estimate
from quire_operator.scaling.inputs import GpuStock, Replica, ScalingInputs, ServiceInputs
from tests.unit.scaling.worlds import KEY, World, accelerator, service

NOW = 10_000.0
PRODUCT = "NVIDIA-L4"


def test_bounds_that_have_changed_hold_at_once_and_nothing_is_counted_twice() -> None:
    world = World(service("l4"), rate=0.5, ordered={"l4": 1})
    world.run(120)
    before, inputs = world.memory, world.inputs()
    more = replace(inputs.services[0], min_replicas=3)

    found, memory = decide(
        replace(inputs, now=world.now + 2.0, services=(more,)), before, changed=[KEY]
    )

    assert found.of(KEY).replicas == {"l4": 3}
    known, kept = before.services[KEY], memory.services[KEY]
    assert kept.samples == known.samples
    assert kept.parts == known.parts
    assert estimate(kept, world.now) == estimate(known, world.now)


def test_what_comes_after_it_is_counted_in_full() -> None:
    world = World(service("l4"), rate=0.5, ordered={"l4": 1})
    world.run(120)
    other = World(service("l4"), rate=0.5, ordered={"l4": 1})
    other.run(120)
    between = replace(other.inputs(), now=other.now + 3.0)
    _, other.memory = decide(between, other.memory, changed=[KEY])

    world.step()
    other.step()

    assert world.memory.services[KEY].samples == other.memory.services[KEY].samples


def test_others_are_not_decided_and_keep_what_is_remembered_of_them() -> None:
    first = replace(service("l4"), key="team/first", ordered={"l4": 1}, min_replicas=2)
    second = replace(service("l4"), key="team/second", ordered={"l4": 1}, min_replicas=2)
    inputs = ScalingInputs(now=NOW, services=(first, second))

    found, memory = decide(inputs, ScalingMemory(), changed=["team/second"])

    assert [one.key for one in found.services] == ["team/second"]
    assert found.of("team/second").replicas == {"l4": 2}
    assert memory.services.keys() == {"team/second"}


def _on_l4(key: str, *, ordered: int, ready: int, **fields: object) -> ServiceInputs:
    """A service that has some of its replicas, and waits for the rest."""
    l4 = accelerator("l4", products=(PRODUCT,))
    replicas = tuple(
        Replica(
            name=f"{key}-{number}",
            accelerator="l4",
            is_scheduled=number < ready,
            is_ready=number < ready,
            waiting_since=None if number < ready else NOW - 300.0,
        )
        for number in range(ordered)
    )
    made = replace(
        service("l4"), key=key, accelerators=(l4,), replicas=replicas, ordered={"l4": ordered}
    )
    return replace(made, **fields)  # type: ignore[arg-type]  # the class's own


def test_gpus_are_shared_as_in_a_round() -> None:
    high = _on_l4("team/high", ordered=3, ready=1, priority=10)
    low = _on_l4("team/low", ordered=1, ready=1, min_replicas=1)
    stock = (GpuStock(product=PRODUCT, num_gpus=2),)
    inputs = ScalingInputs(now=NOW, services=(high, low), stock=stock)

    whole, _ = decide(inputs, ScalingMemory())
    alone, _ = decide(inputs, ScalingMemory(), changed=["team/low"])

    assert alone.of("team/low").replicas == whole.of("team/low").replicas == {"l4": 1}


def test_what_others_have_is_not_taken_where_there_is_no_more() -> None:
    high = _on_l4("team/high", ordered=1, ready=1, priority=10)
    low = _on_l4("team/low", ordered=1, ready=1, min_replicas=2)
    stock = (GpuStock(product=PRODUCT, num_gpus=2, is_final=True),)
    inputs = ScalingInputs(now=NOW, services=(high, low), stock=stock)

    found, _ = decide(inputs, ScalingMemory(), changed=["team/low"])

    assert found.of("team/low").replicas == {"l4": 1}
    assert "Infeasible" in {one.code for one in found.of("team/low").findings}
