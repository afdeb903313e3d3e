"""Several decode steps taken as one, in virtual time."""

from quire_engine.kvcache.manager import BlockManager
from quire_engine.scheduler.request import Request


def remember_steps(blocks: BlockManager, requests: list[Request], num_steps: int) -> None:
    """Let full blocks be found, in the order in which single steps would fill them.

    Of two equal blocks the first one is found, and is shared or not by whoever comes.

    Parameters
    ----------
    requests
        All have their tokens but for the last step's.
    """
    size = blocks.block_size
    filled = [
        (end - first, index, end)
        for index, request in enumerate(requests)
        for first in (request.num_computed_tokens - num_steps + 1,)
        for end in range(-(-first // size) * size, request.num_computed_tokens + 1, size)
    ]
    for _, index, end in sorted(filled):
        blocks.remember(requests[index].table, requests[index].token_ids, end)
