"""All KV blocks of one engine: who holds how many, and what the free ones still remember.

              take                      release (last holder)
    free ─────────────► held (refs 1) ───────────────────────► free
     ▲  cached blocks: still indexed,      ▲ share: refs + 1
     │  evicted from the front when taken  │
     └──────────── share a cached block ───┘

total = held + free; cached blocks are a part of free. Block 0 is the null block, in neither.
"""

from collections.abc import Collection, Iterable

from quire_engine.kvcache.block import Block, BlockHash, FreeList

NULL_BLOCK_ID = 0


class BlockPool:
    """Hands out blocks and takes them back; every count is exact.

    Parameters
    ----------
    num_blocks
        Blocks that requests can use, ids 1 to `num_blocks`.
    """

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ValueError(f"a pool needs at least one block, not {num_blocks}")
        self._blocks = [Block(block_id) for block_id in range(num_blocks + 1)]
        self._free = FreeList(self._blocks[1:])
        self._index: dict[BlockHash, Block] = {}
        self._num_cached = 0
        self.num_freed = 0
        """Blocks that their last holder gave back, since the start."""
        self.num_evictions = 0
        """Cached blocks whose content was given up for others, since the start."""
        self.num_forgotten = 0
        """Blocks that were taken out of the prefix index by `forget`, since the start."""

    @property
    def num_total(self) -> int:
        """All blocks that requests can use."""
        return len(self._blocks) - 1

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds, cached ones included."""
        return len(self._free)

    @property
    def num_held(self) -> int:
        """Blocks that at least one request holds."""
        return self.num_total - len(self._free)

    @property
    def num_cached(self) -> int:
        """Free blocks whose content can still be found."""
        return self._num_cached

    def take(self, count: int) -> list[Block]:
        """Take `count` blocks, evicting cached ones, the longest unused first.

        Raises
        ------
        RuntimeError
            Fewer are free: the caller must ask `num_free` before.
        """
        if count > len(self._free):
            raise RuntimeError(f"bug: {count} blocks asked for, {len(self._free)} free")
        taken = self._free.pop_front(count)
        for block in taken:
            block.ref_count = 1
            if block.hash is not None:
                self._evict(block)
        return taken

    def share(self, blocks: Iterable[Block]) -> None:
        """Add a holder to each block; cached ones leave the free list."""
        for block in blocks:
            if block.ref_count == 0:
                self._free.remove(block)
                self._num_cached -= 1
            block.ref_count += 1

    def release(self, blocks: Iterable[Block]) -> None:
        """Take a holder from each block; those that nobody holds become free, in this order.

        Give a sequence's blocks last one first: a chain's tail is then evicted before its head.
        What no index knows is worth nothing and is reused first.
        """
        free = self._free
        for block in blocks:
            if block.ref_count <= 0:
                raise RuntimeError(f"bug: {block} released more often than taken")
            block.ref_count -= 1
            if block.ref_count == 0:
                self.num_freed += 1
                if block.hash is None:
                    free.prepend(block)
                else:
                    free.append(block)
                    self._num_cached += 1

    def find(self, block_hash: BlockHash, content: bytes) -> Block | None:
        """Return the block that holds this content, or None."""
        block = self._index.get(block_hash)
        return block if block is not None and block.content == content else None

    def findable(self) -> Collection[Block]:
        """Return the blocks that the prefix index knows, held or not; valid until it changes."""
        return self._index.values()

    def next_free(self, count: int) -> list[Block]:
        """Return the free blocks that would be taken next, at most `count`; they stay free."""
        return self._free.first(count)

    def remember(self, block: Block, block_hash: BlockHash, content: bytes) -> None:
        """Let a held, full block be found; the first of two equal blocks stays the known one."""
        if block.hash is None and block_hash not in self._index:
            block.hash = block_hash
            block.content = content
            self._index[block_hash] = block

    def forget(self, blocks: Iterable[Block]) -> None:
        """Let these blocks not be found again: what they hold may be wrong. Their holders stay."""
        for block in blocks:
            if block.hash is None:
                continue
            del self._index[block.hash]
            block.hash = None
            block.content = b""
            self.num_forgotten += 1
            if block.ref_count == 0:
                self._num_cached -= 1

    def forget_all(self) -> None:
        """Empty the prefix index; held blocks stay with their holders."""
        for block in self._index.values():
            block.hash = None
            block.content = b""
        self._index.clear()
        self._num_cached = 0

    def check_invariants(self, holders: Iterable[Iterable[Block]]) -> None:
        """Check every count against the holders' own lists.

        Raises
        ------
        RuntimeError
            A block is lost, double or counted wrong.
        """
        expected = [0] * len(self._blocks)
        for blocks in holders:
            for block in blocks:
                expected[block.block_id] += 1
        free = self._free.to_list()
        if len(free) != len(self._free) or len({block.block_id for block in free}) != len(free):
            raise RuntimeError("bug: the free list's length is wrong or a block is in it twice")
        for block in self._blocks:
            if block.ref_count != expected[block.block_id]:
                raise RuntimeError(f"bug: {block} has {expected[block.block_id]} holders")
        if {b.block_id for b in free} != {b.block_id for b in self._blocks[1:] if not b.ref_count}:
            raise RuntimeError("bug: the free list is not the set of blocks without holder")
        if self._num_cached != sum(block.hash is not None for block in free):
            raise RuntimeError("bug: the count of cached blocks is wrong")
        known = {block.block_id for block in self._blocks if block.hash is not None}
        if known != {block.block_id for block in self._index.values()}:
            raise RuntimeError("bug: the prefix index and the blocks disagree")

    def _evict(self, block: Block) -> None:
        del self._index[block.hash]  # type: ignore[arg-type]  # the caller saw a hash
        block.hash = None
        block.content = b""
        self._num_cached -= 1
        self.num_evictions += 1
