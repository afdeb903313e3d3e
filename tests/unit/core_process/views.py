"""Builders of views."""

from quire_engine.protocol.block_map import BlockMap
from quire_engine.protocol.messages import BlockCounts, CoreView


def make_view(seconds: float) -> CoreView:
    blocks = BlockCounts(total=1, held=0, free=1, cached=0, reserved=0, queued=0)
    return CoreView(
        seconds=seconds,
        executor="none",
        blocks=blocks,
        map=BlockMap(stride=1, num_cells=1, runs=[0, 1], num_shared=0),
        requests=[],
        num_running=0,
        num_waiting=0,
        num_prefill_tokens=0,
        num_decode_tokens=0,
        num_prefix_queries=0,
        num_prefix_hits=0,
    )
