"""Thousands of random histories of a block pool, checked against plain lists."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from quire_engine.kvcache.manager import BlockManager
from quire_engine.kvcache.table import BlockTable

BLOCK_SIZE = 4
NUM_BLOCKS = 12

token_lists = st.lists(st.integers(0, 2), min_size=1, max_size=30)


class BlockHistories(RuleBasedStateMachine):
    """Sequences that begin, grow, fork, write and end over a tiny cache."""

    def __init__(self) -> None:
        super().__init__()
        self.manager = BlockManager(num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, secret=b"test")
        self.sequences: list[tuple[BlockTable, list[int]]] = []
        self.contents: dict[int, tuple[str | int, ...]] = {}
        """What a device would hold: block id to the tokens written there, by position."""

    @rule(tokens=token_lists, salt=st.sampled_from(["", "tenant"]))
    def begin(self, tokens: list[int], salt: str) -> None:
        table = self.manager.open_table({"salt": salt})
        match = self.manager.match_prefix(table, tokens)
        assert match.num_tokens < len(tokens)
        needed = self.manager.num_blocks_for(len(tokens)) - len(match.blocks) + match.num_evictable
        if needed > self.manager.pool.num_free:
            return
        self.manager.begin(table, match)
        for index, block in enumerate(table.blocks):
            expected: tuple[str | int, ...] = (salt, *tokens[: (index + 1) * BLOCK_SIZE])
            assert self.contents[block.block_id] == expected
        self.manager.grow(table, len(tokens))
        self.write(table, tokens, match.num_tokens, salt)
        self.manager.remember(table, tokens, len(tokens))
        self.sequences.append((table, tokens))

    def write(self, table: BlockTable, tokens: list[int], start: int, salt: str) -> None:
        for index in range(start // BLOCK_SIZE, len(table.blocks)):
            block_id = table.blocks[index].block_id
            self.contents[block_id] = (salt, *tokens[: (index + 1) * BLOCK_SIZE])

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        table, tokens = data.draw(st.sampled_from(self.sequences))
        self.sequences.append((self.manager.fork(table, len(tokens)), list(tokens)))

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def write_last_position(self, data: st.DataObject) -> None:
        table, tokens = data.draw(st.sampled_from(self.sequences))
        position = len(tokens) - 1
        block = table.blocks[position // BLOCK_SIZE]
        was_shared = block.ref_count > 1
        if was_shared and self.manager.pool.num_free == 0:
            return
        copied = self.manager.make_writable(table, position)
        assert (copied is not None) == was_shared
        own = table.blocks[position // BLOCK_SIZE]
        assert own.ref_count == 1
        if copied is not None:
            assert copied == (block.block_id, own.block_id)
            self.contents[own.block_id] = self.contents[block.block_id]

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.sequences) - 1))
        table, _ = self.sequences.pop(index)
        self.manager.release(table)
        assert table.blocks == []

    @rule()
    def forget(self) -> None:
        self.manager.pool.forget_all()
        assert self.manager.pool.num_cached == 0

    @invariant()
    def accounts_are_right(self) -> None:
        self.manager.check_invariants(table for table, _ in self.sequences)
        pool = self.manager.pool
        assert pool.num_held + pool.num_free == pool.num_total == NUM_BLOCKS
        assert 0 <= pool.num_cached <= pool.num_free


TestBlockHistories = BlockHistories.TestCase
TestBlockHistories.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
