"""One KV block, and the list of those that nobody holds."""

from collections.abc import Iterable
from typing import NewType

BlockHash = NewType("BlockHash", bytes)
"""16 bytes that name a block's tokens and all that came before them."""


class Block:
    """A block's state; the KV itself lives with the executor, under `block_id`."""

    __slots__ = ("block_id", "content", "hash", "next", "previous", "ref_count")

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_count = 0
        self.hash: BlockHash | None = None
        """Set while the prefix index knows the block."""
        self.content = b""
        """The token ids behind `hash`, packed: compared on a hit, for hashes can collide."""
        self.previous: Block | None = None
        self.next: Block | None = None

    def __repr__(self) -> str:
        return f"Block({self.block_id}, refs={self.ref_count}, hash={self.hash is not None})"


class FreeList:
    """Blocks that nobody holds, the first to be reused in front.

    A linked list through the blocks themselves instead of a deque: a prefix hit removes a block
    from the middle in O(1).
    """

    __slots__ = ("_back", "_front", "_length")

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._front = Block(-1)
        self._back = Block(-1)
        self._front.next = self._back
        self._back.previous = self._front
        self._length = 0
        for block in blocks:
            self.append(block)

    def __len__(self) -> int:
        return self._length

    def append(self, block: Block) -> None:
        """Add a block at the back: reused last."""
        self._insert(block, self._back.previous, self._back)

    def prepend(self, block: Block) -> None:
        """Add a block at the front: reused first."""
        self._insert(block, self._front, self._front.next)

    def pop_front(self, count: int) -> list[Block]:
        """Remove and return the first `count` blocks; there must be as many."""
        taken = []
        block = self._front.next
        for _ in range(count):
            taken.append(block)
            block = block.next  # type: ignore[union-attr]  # the caller checked the count
        self._front.next = block
        block.previous = self._front  # type: ignore[union-attr]
        self._length -= count
        return taken  # type: ignore[return-value]

    def remove(self, block: Block) -> None:
        """Take a block out of the middle."""
        previous, following = block.previous, block.next
        previous.next = following  # type: ignore[union-attr]  # it is in the list
        following.previous = previous  # type: ignore[union-attr]
        self._length -= 1

    def to_list(self) -> list[Block]:
        """Return all blocks, front to back, for checks."""
        return self.first(self._length)

    def first(self, count: int) -> list[Block]:
        """Return the first `count` blocks, which stay in the list, or all if there are fewer."""
        blocks: list[Block] = []
        block = self._front.next
        while block is not None and block is not self._back and len(blocks) < count:
            blocks.append(block)
            block = block.next
        return blocks

    def _insert(self, block: Block, previous: Block | None, following: Block | None) -> None:
        block.previous = previous
        block.next = following
        previous.next = block  # type: ignore[union-attr]  # the ends are never None
        following.previous = block  # type: ignore[union-attr]
        self._length += 1
