"""What requests are expected to take."""

import pytest

from quire_engine.profiles.output_length import OutputLengthSketch
from quire_gateway.choosing.demand import expect_tokens, merge_lengths
from tests.unit.gateway.builders import demand


def lengths(*tokens: int) -> OutputLengthSketch:
    sketch = OutputLengthSketch()
    for number in tokens:
        sketch.add(number, ended=True)
    return sketch


def test_until_answers_were_seen_a_request_takes_all_it_may() -> None:
    fresh = demand(num_prompt_tokens=160, max_tokens=320)
    assert fresh.num_output_tokens == pytest.approx(320)
    assert 10 + 256 / 16 <= fresh.blocks(16) <= 30


def test_it_takes_less_where_answers_were_short_and_never_more_than_max_tokens() -> None:
    curve = merge_lengths([lengths(*[40] * 50).to_state(), None, lengths(*[60] * 50).to_state()])
    usual = demand(max_tokens=4000, survival=curve)
    # straight lines between horizons and the prior's two requests leave some room
    assert 35 < usual.num_output_tokens < 300
    assert usual.blocks(16) < demand(max_tokens=4000).blocks(16)
    assert expect_tokens(curve, 10) == pytest.approx(10, rel=0.01)


def test_answers_side_by_side_share_the_prompts_full_blocks() -> None:
    one = demand(num_prompt_tokens=1610, max_tokens=32)
    four = demand(num_prompt_tokens=1610, max_tokens=32, num_sequences=4)
    assert one.blocks(16) < four.blocks(16) < one.blocks(16) + 10
