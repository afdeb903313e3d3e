"""What a view says of requests: their state and sizes, never their text."""

import msgspec

from quire_engine.core.view import describe_core
from quire_engine.protocol.block_map import MAX_RUNNING_SHOWN, MAX_WAITING_SHOWN, RequestView
from quire_engine.protocol.messages import BlockCounts, CoreView, Priority
from tests.unit.scheduler.harness import Harness


def view_of(harness: Harness) -> CoreView:
    pool = harness.scheduler.blocks.pool
    blocks = BlockCounts(
        total=pool.num_total,
        held=pool.num_held,
        free=pool.num_free,
        cached=pool.num_cached,
        reserved=harness.scheduler.num_reserved_blocks(),
        queued=0,
    )
    return describe_core(harness.scheduler, blocks, "a GPU", harness.now)


def test_requests_are_described_in_every_phase() -> None:
    harness = Harness(num_blocks=64, max_num_seqs=2)
    harness.add([1, 2, 3], max_tokens=5)
    harness.step()
    harness.add(list(range(20)), max_tokens=4)
    harness.add([7, 8], priority=Priority.BACKGROUND)
    harness.step()

    decoding, prefilling, waiting = view_of(harness).requests

    assert (decoding.phase, decoding.num_prompt_tokens, decoding.num_tokens) == ("decode", 3, 5)
    assert (decoding.max_tokens, decoding.num_blocks) == (8, 1)
    assert prefilling.phase == "prefill"
    assert 0 < prefilling.num_computed_tokens < 20
    assert prefilling.queue_seconds == 1.0  # it came at 1 and started at 2
    assert (waiting.phase, waiting.priority, waiting.num_blocks) == ("waiting", "background", 0)
    assert (decoding.number, prefilling.number, waiting.number) == (1, 2, 3)
    harness.now += 9
    assert view_of(harness).requests[2].queue_seconds == waiting.queue_seconds + 9


def test_a_preempted_request_says_so() -> None:
    harness = Harness(num_blocks=6, max_num_seqs=4)
    for token in range(3):
        harness.add([token] * 4, max_tokens=12)
    while not any(request.num_preemptions for request in harness.requests.values()):
        harness.step()

    phases = [request.phase for request in view_of(harness).requests]
    assert "preempted" in phases
    assert "decode" in phases


def test_tokens_are_counted_as_prompts_or_decodes() -> None:
    harness = Harness(num_blocks=64)
    harness.add(list(range(10)), max_tokens=5)
    harness.run_to_end()
    view = view_of(harness)

    assert view.num_prefill_tokens == 10
    assert view.num_decode_tokens == 4  # the first output token comes of the prompt
    assert view.num_prefix_queries == 10


def test_no_token_of_a_request_is_in_its_view() -> None:
    harness = Harness(num_blocks=64)
    secret = 48_879
    harness.add([secret] * 6, max_tokens=5)
    harness.step()
    view = view_of(harness)

    assert str(secret) not in msgspec.json.encode(view).decode()
    for name in RequestView.__struct_fields__:
        assert isinstance(getattr(view.requests[0], name), (str, int, float)), name


def test_the_list_of_requests_is_bounded_and_the_counts_are_not() -> None:
    num_running, num_waiting = MAX_RUNNING_SHOWN + 10, MAX_WAITING_SHOWN + 20
    harness = Harness(num_blocks=1000, max_num_seqs=num_running, max_num_batched_tokens=1000)
    for number in range(num_running + num_waiting):
        harness.add([number])
    harness.step()
    view = view_of(harness)

    assert (view.num_running, view.num_waiting) == (num_running, num_waiting)
    assert len(view.requests) == MAX_RUNNING_SHOWN + MAX_WAITING_SHOWN
