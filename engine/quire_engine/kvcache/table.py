"""One sequence's blocks, in order."""

from quire_engine.kvcache.block import Block, BlockHash


class BlockTable:
    """Which block holds which tokens: token i is in `blocks[i // block_size]`."""

    __slots__ = ("blocks", "hashes", "num_remembered", "root")

    def __init__(self, root: BlockHash) -> None:
        self.root = root
        """Hash of what must be equal before this sequence may share blocks."""
        self.blocks: list[Block] = []
        self.hashes: list[BlockHash] = []
        """Hash of each full block of known tokens, as far as it was needed; survives release."""
        self.num_remembered = 0
        """The first so many blocks were offered to the prefix index."""

    @property
    def block_ids(self) -> list[int]:
        """The ids, for the executor."""
        return [block.block_id for block in self.blocks]
