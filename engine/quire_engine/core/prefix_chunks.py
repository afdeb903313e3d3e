"""Which of the text chunks that gateways name are in the prefix cache.

A gateway knows texts, the cache knows blocks of tokens. A request brings the names (hashes) of its
prompt's chunks, in order; their borders in tokens are taken as evenly spread:

    prompt    [  chunk 0   |  chunk 1   |  chunk 2   ]        num_prompt_tokens
    blocks    [ 0 ][ 1 ][ 2 ][ 3 ][ 4 ][ 5 ][ 6 ]. .
    marks              ▲            ▲             ▲           last full block before each end

A chunk is in the cache while the block at its mark is: blocks are evicted from a chain's tail, so
those before it are there too. Looked at on a timer, never in a step.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from quire_engine.kvcache.block import Block, BlockHash
from quire_engine.kvcache.hashing import pack_tokens
from quire_engine.kvcache.pool import BlockPool
from quire_engine.protocol.messages import PrefixChunks
from quire_engine.scheduler.request import Request

MAX_CHUNKS = 4096
"""So many chunks are followed; beyond, those that no request has brought for longest are reported
as gone."""


class PrefixChunkWatch:
    """Follows chunks from their request's arrival to their eviction."""

    def __init__(self, pool: BlockPool, block_size: int) -> None:
        self._pool = pool
        self._block_size = block_size
        self._pending: dict[str, tuple[Request, list[str]]] = {}
        """Requests with chunks that are not in the cache yet."""
        self._present: OrderedDict[str, tuple[Block, BlockHash]] = OrderedDict()
        self._events: list[tuple[bool, str]] = []
        self._num_told = 0
        self._num_gone = 0

    def follow(self, request: Request, chunks: Sequence[str]) -> None:
        """Remember a request's chunks until its prompt is computed, or it ends."""
        if chunks:
            self._pending[request.request_id] = (request, list(chunks))

    def news(self) -> PrefixChunks | None:
        """What changed since the last call, or None."""
        self._find_evicted()
        self._find_inserted()
        if not self._events:
            return None
        news = PrefixChunks(first_number=self._num_told, events=self._events)
        self._num_told += len(self._events)
        self._events = []
        return news

    def _find_evicted(self) -> None:
        num_gone = self._pool.num_evictions + self._pool.num_forgotten
        if num_gone == self._num_gone:
            return
        self._num_gone = num_gone
        gone = [name for name, (block, key) in self._present.items() if block.hash != key]
        self._drop(gone)

    def _find_inserted(self) -> None:
        done = []
        for request_id, (request, chunks) in self._pending.items():
            if self._insert_computed(request, chunks) or request.finish_reason is not None:
                done.append(request_id)
                self._refresh(chunks)
        for request_id in done:
            del self._pending[request_id]
        surplus = len(self._present) - MAX_CHUNKS
        self._drop(list(self._present)[: max(surplus, 0)])

    def _insert_computed(self, request: Request, chunks: list[str]) -> bool:
        """Report the chunks whose blocks are there; the answer says whether that is all."""
        known = len(request.table.hashes)
        for index, name in enumerate(chunks):
            end = -(-(index + 1) * request.num_prompt_tokens // len(chunks))
            mark = end // self._block_size - 1
            if mark < 0:
                continue  # no block of its own: nothing to find again
            if mark >= known:
                return False
            if name not in self._present and not self._insert(request, name, mark):
                return False
        return True

    def _refresh(self, chunks: Sequence[str]) -> None:
        """Put a prompt's chunks behind all others, its first at the very end: it goes last."""
        for name in reversed(chunks):
            if name in self._present:
                self._present.move_to_end(name)

    def _insert(self, request: Request, name: str, mark: int) -> bool:
        key = request.table.hashes[mark]
        start = mark * self._block_size
        content = pack_tokens(request.token_ids[start : start + self._block_size])
        block = self._pool.find(key, content)
        if block is None:
            return False
        self._present[name] = (block, key)
        self._events.append((True, name))
        return True

    def _drop(self, names: Iterable[str]) -> None:
        for name in names:
            del self._present[name]
            self._events.append((False, name))
