"""What the scheduler asks of the KV cache: room, prefixes and copies, by sequence."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from quire_engine.kvcache.block import Block, BlockHash
from quire_engine.kvcache.hashing import TOKEN_BYTES, BlockHasher, pack_tokens
from quire_engine.kvcache.pool import BlockPool
from quire_engine.kvcache.table import BlockTable

_BLOCKS_PACKED = 16


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """The longest known beginning of a sequence; valid until the next take."""

    blocks: tuple[Block, ...] = ()
    num_tokens: int = 0
    num_evictable: int = 0
    """Blocks of the match that are free now: holding them costs room, unlike shared ones."""
    num_copied: int = 0
    """Blocks of the match's end that are to be copied before the first write: they cost room."""
    hashes: tuple[BlockHash, ...] = ()
    """Of the match's full blocks, where they are known."""

    @property
    def num_shared(self) -> int:
        """Blocks of the match that others hold: they cost no room."""
        return len(self.blocks) - self.num_evictable - self.num_copied


class BlockManager:
    """Sequences over a pool of blocks.

    Parameters
    ----------
    num_blocks
        Blocks that requests can use, the null block not counted.
    block_size
        Tokens per block.
    secret
        Keys the prefix hashes; random per process.
    enable_prefix_caching
        Whether finished sequences' blocks can be found again.
    """

    def __init__(
        self, *, num_blocks: int, block_size: int, secret: bytes, enable_prefix_caching: bool = True
    ) -> None:
        self.pool = BlockPool(num_blocks)
        self.block_size = block_size
        self._hasher = BlockHasher(secret)
        self._enabled = enable_prefix_caching

    def open_table(self, extras: Mapping[str, str]) -> BlockTable:
        """Return an empty table for a sequence that shares only with equal `extras`."""
        return BlockTable(self._hasher.root(extras))

    def num_blocks_for(self, num_tokens: int) -> int:
        """Return how many blocks hold `num_tokens`."""
        return -(-num_tokens // self.block_size)

    def match_prefix(self, table: BlockTable, token_ids: Sequence[int]) -> PrefixMatch:
        """Find the longest known prefix, leaving at least the last token to be computed."""
        if not self._enabled:
            return PrefixMatch()
        found: list[Block] = []
        num_evictable = 0
        end = (len(token_ids) - 1) // self.block_size
        for block_hash, content in self._hash_blocks(table, token_ids, 0, end):
            block = self.pool.find(block_hash, content)
            if block is None:
                break
            found.append(block)
            num_evictable += block.ref_count == 0
        return PrefixMatch(tuple(found), len(found) * self.block_size, num_evictable)

    def match_twin(self, table: BlockTable, num_tokens: int) -> PrefixMatch:
        """Return all of another sequence's first `num_tokens`, whose KV is there, to start with.

        The last token is left to be computed; its block is written then, so it is to be copied.
        """
        count = self.num_blocks_for(num_tokens)
        return PrefixMatch(
            tuple(table.blocks[:count]),
            num_tokens - 1,
            num_copied=1,
            hashes=tuple(table.hashes[: num_tokens // self.block_size]),
        )

    def begin(self, table: BlockTable, match: PrefixMatch) -> None:
        """Let an empty table start with a match's blocks; copies of them are up to the caller."""
        if table.blocks:
            raise RuntimeError("bug: a table that holds blocks cannot begin again")
        self.pool.share(match.blocks)
        table.blocks.extend(match.blocks)
        table.hashes.extend(match.hashes[len(table.hashes) :])
        table.num_remembered = len(match.blocks) - match.num_copied

    def grow(self, table: BlockTable, num_tokens: int) -> list[int]:
        """Add blocks until the table holds `num_tokens`; return the new ids.

        Raises
        ------
        RuntimeError
            Too few are free: ask `num_missing` before.
        """
        missing = self.num_missing(table, num_tokens)
        if missing <= 0:
            return []
        blocks = self.pool.take(missing)
        table.blocks.extend(blocks)
        return [block.block_id for block in blocks]

    def num_missing(self, table: BlockTable, num_tokens: int) -> int:
        """Return how many blocks the table lacks to hold `num_tokens`; negative if it has more."""
        return -(-num_tokens // self.block_size) - len(table.blocks)

    def remember(self, table: BlockTable, token_ids: Sequence[int], num_computed: int) -> None:
        """Let the table's full, computed blocks be found by others."""
        if not self._enabled:
            return
        first, end = table.num_remembered, num_computed // self.block_size
        for block_hash, content in self._hash_blocks(table, token_ids, first, end):
            self.pool.remember(table.blocks[table.num_remembered], block_hash, content)
            table.num_remembered += 1

    def release(self, table: BlockTable) -> None:
        """Give all blocks of a sequence back, its tail to be evicted before its head."""
        self.pool.release(reversed(table.blocks))
        table.blocks.clear()
        table.num_remembered = 0

    def forget(self, table: BlockTable) -> None:
        """Let nobody find what this sequence computed or shared: its KV may be wrong."""
        self.pool.forget(table.blocks)

    def fork(self, table: BlockTable, num_tokens: int) -> BlockTable:
        """Return a second table over the blocks of the first `num_tokens`, to go on otherwise.

        What both hold at its end is to be copied before either writes there.
        """
        twin = BlockTable(table.root)
        twin.blocks.extend(table.blocks[: self.num_blocks_for(num_tokens)])
        self.pool.share(twin.blocks)
        num_full = num_tokens // self.block_size
        twin.hashes.extend(table.hashes[:num_full])
        twin.num_remembered = min(table.num_remembered, num_full)
        return twin

    def make_writable(self, table: BlockTable, position: int) -> tuple[int, int] | None:
        """Give the table a block of its own for `position`: copy-on-write.

        Returns
        -------
        The (source, destination) ids to copy before writing, or None if nobody else holds it.
        """
        index = position // self.block_size
        shared = table.blocks[index]
        if shared.ref_count == 1:
            return None
        (own,) = self.pool.take(1)
        self.pool.release((shared,))
        table.blocks[index] = own
        table.num_remembered = min(table.num_remembered, index)
        return shared.block_id, own.block_id

    def check_invariants(self, tables: Iterable[BlockTable]) -> None:
        """Check every block against the tables of all sequences; raises RuntimeError."""
        self.pool.check_invariants(table.blocks for table in tables)

    def _hash_blocks(
        self, table: BlockTable, token_ids: Sequence[int], first: int, end: int
    ) -> Iterator[tuple[BlockHash, bytes]]:
        """Yield hash and content of the full blocks from `first` to before `end`.

        Several are packed at a time, which costs little more than one: but not all, for nearly
        all prompts miss early.
        """
        size, hashes = self.block_size, table.hashes
        num_bytes = size * TOKEN_BYTES
        for start in range(first, end, _BLOCKS_PACKED):
            stop = min(start + _BLOCKS_PACKED, end)
            packed = pack_tokens(token_ids[start * size : stop * size])
            for index in range(start, stop):
                offset = (index - start) * num_bytes
                content = packed[offset : offset + num_bytes]
                if index == len(hashes):
                    parent = hashes[-1] if hashes else table.root
                    hashes.append(self._hasher.child(parent, content))
                yield hashes[index], content
