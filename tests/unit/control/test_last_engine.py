"""What gateways are told of engines while there is none."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from quire_engine.profiles.output_length import OutputLengthSketch
from quire_engine.profiles.step_time import constant_step_time
from quire_gateway.routing.document import read_documents
from quire_operator.cluster.kinds import CONFIG_MAPS
from quire_operator.cluster.store import Store
from quire_operator.planner.documents import routing_map
from quire_operator.planner.last_engine import LastEngine, last_engine_from, noted, told_of
from quire_operator.planner.observed import Observed
from quire_operator.reconciling.observing import observe
from tests.unit.control.builders import L4, SETTINGS, service
from tests.unit.control.plans import state_of

SERVICE = service(L4)
STATE = state_of(
    0,
    step_time=msgspec.to_builtins(constant_step_time(0.01)),
    output_lengths=msgspec.to_builtins(OutputLengthSketch().to_state()),
    max_step_tokens=2048,
)


def last(**changes: Any) -> LastEngine:
    made = last_engine_from(STATE.__replace__(**changes))
    assert made is not None
    return made


def observed_by_an_operator_that_starts(body: dict[str, Any], **spec: Any) -> Observed:
    store = Store()
    store.put(CONFIG_MAPS.kind, body)
    return observe(
        store,
        service(L4, **spec),
        engines={},
        secrets=Observed(service=SERVICE).secrets,
        root_secret=b"",
        may_see_nodes=False,
        gateway=None,
    )


def test_a_gateway_reads_it_and_an_operator_that_starts_leaves_it_as_it_is() -> None:
    body = routing_map(Observed(service=SERVICE, last_engine=last()), SETTINGS)
    (document,) = read_documents(body["data"]["routing.json"].encode())
    assert document.last_engine is not None
    assert msgspec.to_builtins(document.last_engine) == msgspec.to_builtins(last())

    seen = observed_by_an_operator_that_starts(body)
    assert seen.last_engine == last()
    assert routing_map(seen, SETTINGS) == body
    other = observed_by_an_operator_that_starts(body, model={"source": "hf://acme/other"})
    assert other.last_engine is None


@pytest.mark.parametrize(
    "annotations", [None, {}, {"serving.quire.dev/last-engine": '{"source": 1}'}]
)
def test_what_others_wrote_there_is_nothing(annotations: dict[str, str] | None) -> None:
    assert noted({"annotations": annotations}, "hf://acme/thing@main") is None


def test_it_is_written_as_the_last_engine_goes() -> None:
    before, now = last(), last(max_model_len=100)
    assert told_of(None, None, has_engines=False) is None
    assert told_of(None, now, has_engines=True) is now
    assert told_of(before, now, has_engines=True) is before
    assert told_of(before, now, has_engines=False) is now
    assert told_of(before, None, has_engines=False) is before


def test_what_cannot_be_is_not_told() -> None:
    """A gateway would refuse the document for it."""
    blocks = STATE.blocks
    for changes in (
        {"tokens_per_block": 0},
        {"max_model_len": -1},
        {"max_step_tokens": 0},
        {"blocks": blocks.__replace__(total=1 << 40)},
        {"sequences": STATE.sequences.__replace__(slots=0)},
    ):
        assert last_engine_from(STATE.__replace__(**changes)) is None


def test_what_has_no_room_is_left_out() -> None:
    assert STATE.step_time is not None
    endless = msgspec.structs.replace(STATE.step_time, source="x" * 20_000)
    made = last(step_time=endless)
    assert made.step_time is None
    assert made.num_blocks == 1000
    seen = replace(Observed(service=SERVICE), last_engine=made)
    assert len(str(routing_map(seen, SETTINGS))) < 10_000
