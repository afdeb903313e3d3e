"""Names of prompts' parts, and which engine has them."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from quire_engine.protocol.state import PrefixChunkLog
from quire_gateway.choosing.prefix_index import (
    EXPECTED_SECONDS,
    MAX_CHUNKS_PER_ENGINE,
    Event,
    PrefixIndex,
)
from quire_gateway.choosing.text_chunks import (
    CHUNK_BYTES,
    MAX_CHUNKS,
    name_chunks,
    read_name,
    write_names,
)

texts = st.binary(max_size=4 * CHUNK_BYTES)


@given(shared=st.integers(1, 5), one=texts, other=texts)
def test_prompts_share_names_as_far_as_they_share_text(
    shared: int, one: bytes, other: bytes
) -> None:
    prefix = bytes(range(256)) * (shared * CHUNK_BYTES // 256)
    first, second = name_chunks([prefix, one]), name_chunks([prefix + other])
    common = 0
    while common < min(len(one), len(other)) and one[common] == other[common]:
        common += 1
    num_equal = shared + common // CHUNK_BYTES
    assert first[:shared] == second[:shared]
    if one != other:
        whole = first[: num_equal + 1], second[: num_equal + 1]
        assert whole[0] != whole[1]


def test_long_texts_have_larger_pieces_and_not_more_of_them() -> None:
    for size in (1, CHUNK_BYTES, CHUNK_BYTES * MAX_CHUNKS, CHUNK_BYTES * MAX_CHUNKS + 1, 1 << 21):
        assert 0 < len(name_chunks([b"x" * size])) <= MAX_CHUNKS
    assert name_chunks([]) == ()


def test_another_salt_shares_nothing() -> None:
    text = [b"x" * 5000]
    assert not set(name_chunks(text)) & set(name_chunks(text, "tenant"))


def test_names_are_read_as_they_were_written() -> None:
    names = name_chunks([b"x" * 5000])
    assert tuple(read_name(text) for text in write_names(names).decode().split(",")) == names
    assert read_name("12345678") is None
    assert read_name("not hexadecimal!") is None


def log(first: int, *events: Event) -> PrefixChunkLog:
    return PrefixChunkLog(first_number=first, next_number=first + len(events), events=list(events))


def name(number: int) -> str:
    return f"{number:016x}"


def test_an_engine_that_reports_ever_more_is_bounded() -> None:
    index = PrefixIndex()
    slot = index.join()
    events: list[Event] = [("inserted", name(n)) for n in range(2 * MAX_CHUNKS_PER_ENGINE)]
    index.follow(slot, log(0, *events))
    assert len(index) == MAX_CHUNKS_PER_ENGINE


def test_what_was_sent_counts_as_cached_until_the_engine_should_have_told_it() -> None:
    index = PrefixIndex()
    slot, other = index.join(), index.join()
    index.follow(slot, log(0))
    index.expect(slot, (1, 2, 3), 0.0)
    index.expect(other, (1,), 5.0)
    assert index.hits((1, 2, 3)) == {slot: 3, other: 1}

    index.follow(slot, log(0, ("inserted", name(1)), ("inserted", name(2))))
    index.expire(EXPECTED_SECONDS)
    assert index.hits((1, 2, 3)) == {slot: 2, other: 1}
    index.expire(EXPECTED_SECONDS + 5.0)
    assert index.hits((1, 2, 3)) == {slot: 2}

    index.expect(other, (1, 2), 20.0)
    index.follow(slot, log(2, ("evicted", name(1))))
    assert index.hits((1, 2)) == {other: 2}
    index.leave(other)
    assert len(index) == 1
    assert index.hits((1, 2)) == {}


def test_what_was_refused_does_not_count_as_cached() -> None:
    index = PrefixIndex()
    slot, other = index.join(), index.join()
    index.follow(slot, log(0, ("inserted", name(1))))
    index.expect(slot, (1, 2, 3), 0.0)
    index.expect(other, (1, 2), 0.0)

    index.retract(slot, (1, 2, 3))
    assert index.hits((1, 2, 3)) == {slot: 1, other: 2}
    index.retract(other, (1, 2))
    index.retract(other, (1, 2))
    assert index.hits((1, 2, 3)) == {slot: 1}


class IndexHistories(RuleBasedStateMachine):
    """Engines that join, tell, lose events and leave; against plain sets."""

    def __init__(self) -> None:
        super().__init__()
        self.index = PrefixIndex()
        self.held: dict[int, set[int]] = {}
        self.told: dict[int, int] = {}

    @precondition(lambda self: len(self.held) < 4)
    @rule()
    def join(self) -> None:
        slot = self.index.join()
        assert slot not in self.held
        self.held[slot], self.told[slot] = set(), 0

    @precondition(lambda self: self.held)
    @rule(
        data=st.data(), numbers=st.lists(st.integers(0, 9), max_size=6), skipped=st.integers(0, 1)
    )
    def tell(self, data: st.DataObject, numbers: list[int], skipped: int) -> None:
        slot = data.draw(st.sampled_from(sorted(self.held)))
        held = self.held[slot]
        if skipped:
            held.clear()
        events: list[Event] = []
        for number in numbers:
            events.append(("evicted" if number in held else "inserted", name(number)))
            held ^= {number}
        first = self.told[slot] + skipped
        self.index.follow(slot, log(first, *events))
        self.told[slot] = first + len(events)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), leaves=st.booleans())
    def end(self, data: st.DataObject, leaves: bool) -> None:
        slot = data.draw(st.sampled_from(sorted(self.held)))
        if leaves:
            self.index.leave(slot)
            del self.held[slot], self.told[slot]
        else:
            self.index.forget(slot)
            self.held[slot].clear()

    @invariant()
    def hits_are_what_each_engine_has_from_the_start(self) -> None:
        wanted = (1, 2, 3, 4)
        expected = {}
        for slot, held in self.held.items():
            count = next((i for i, n in enumerate(wanted) if n not in held), len(wanted))
            if count:
                expected[slot] = count
        assert self.index.hits(wanted) == expected
        assert len(self.index) == len(set().union(*self.held.values()))


TestIndexHistories = IndexHistories.TestCase
TestIndexHistories.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
