"""What is reserved with background requests is their part and that of all others."""

from collections.abc import Iterable

import pytest

from quire_engine.kvcache.manager import BlockManager
from quire_engine.profiles.output_length import OutputLengthSketch
from quire_engine.protocol.messages import Priority
from quire_engine.protocol.sampling import SamplingParams
from quire_engine.scheduler.ledger import ReservationLedger
from quire_engine.scheduler.request import Request

NUM_BLOCKS = 4000


def build_ledger(priorities: Iterable[Priority], *, factor: float) -> ReservationLedger:
    """Return one whose requests run, are of 1 to 200 tokens, and scatter more than others."""
    lengths = OutputLengthSketch()
    for num_tokens in range(1, 200):
        lengths.add(num_tokens, ended=True)
    blocks = BlockManager(num_blocks=NUM_BLOCKS, block_size=16, secret=b"test")
    ledger = ReservationLedger(blocks, lengths=lengths)
    ledger.dispersion.factor = factor
    for number, priority in enumerate(priorities):
        num_tokens = 20 + 7 * number
        request = Request(
            request_id=str(number),
            client_id="c",
            prompt_token_ids=[number] * num_tokens,
            sampling=SamplingParams(max_tokens=500),
            priority=priority,
            seniority=(int(priority), 0.0, number),
            seed=0,
            max_length=num_tokens + 500,
            table=blocks.open_table({}),
        )
        ledger.queue(request, ledger.predict(request))
        ledger.admit(request)
        blocks.grow(request.table, num_tokens)
    return ledger


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.5])
def test_what_background_gives_up_is_what_others_would_not_reserve_without_it(
    factor: float,
) -> None:
    interactive = [Priority.INTERACTIVE] * 20
    both = build_ledger([*interactive, *[Priority.BACKGROUND] * 30], factor=factor)
    alone = build_ledger(interactive, factor=factor)
    rest, expected = both.curve_if_background_yields(0), alone.curve(0)
    assert rest.alive == pytest.approx(expected.alive)
    assert rest.mean == pytest.approx(expected.mean)
    assert rest.variance == pytest.approx(expected.variance, abs=1e-6)
    left = both.num_reserved_blocks(0) - both.num_yielding_blocks(0)
    assert left == pytest.approx(alone.num_reserved_blocks(0), abs=1)


def test_background_alone_gives_up_all_that_it_reserves() -> None:
    ledger = build_ledger([Priority.BACKGROUND] * 30, factor=1.5)
    assert ledger.num_yielding_blocks(0) == ledger.num_reserved_blocks(0) > 0


def test_interactive_requests_alone_give_up_nothing() -> None:
    ledger = build_ledger([Priority.INTERACTIVE] * 30, factor=1.5)
    assert ledger.num_yielding_blocks(0) == 0
    assert ledger.curve_if_background_yields(0).mean == ledger.curve(0).mean
