"""Text arrives whole characters at a time, and joined it is what decoding at once gives."""

import tokenizers
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models

from quire_engine.tokenizing.detokenizer import Detokenizer
from tests.unit.tokenizing.builders import train_byte_level

BACKEND = train_byte_level()
IDS = st.lists(st.integers(0, BACKEND.get_vocab_size() - 1), max_size=60)


def pieces_of(token_ids: list[int], *, skip_special_tokens: bool = True) -> list[str]:
    detokenizer = Detokenizer(BACKEND, skip_special_tokens=skip_special_tokens)
    return [*map(detokenizer.push, token_ids), detokenizer.finish()]


@settings(deadline=None)
@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=40))
def test_every_piece_of_a_text_is_whole(text: str) -> None:
    pieces = pieces_of(BACKEND.encode(text).ids)
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text


@settings(deadline=None)
@given(IDS, st.booleans())
def test_any_tokens_give_what_decoding_at_once_gives(token_ids: list[int], skip: bool) -> None:
    expected = BACKEND.decode(token_ids, skip_special_tokens=skip)
    assert "".join(pieces_of(token_ids, skip_special_tokens=skip)) == expected


@settings(deadline=None)
@given(IDS, IDS)
def test_what_came_before_does_not_matter_to_bytes(
    context: list[int], token_ids: list[int]
) -> None:
    # half a character at the prompt's end is shown there: the answer cannot complete it
    assume(not BACKEND.decode(context).endswith("\ufffd"))
    detokenizer = Detokenizer(BACKEND, context_ids=context)
    text = detokenizer.push_all(token_ids) + detokenizer.finish()
    assert BACKEND.decode(context + token_ids).endswith(text)


def test_a_character_is_held_until_its_last_byte() -> None:
    ids = BACKEND.encode("\U00010348").ids
    assert len(ids) == 4
    assert pieces_of(ids) == ["", "", "", "\U00010348", ""]


def test_half_a_character_at_the_end_is_shown_as_such() -> None:
    assert pieces_of(BACKEND.encode("\U00010348").ids[:2]) == ["", "", "\ufffd"]


def test_the_first_word_keeps_its_space_after_a_prompt() -> None:
    words = {"\u2581Hello": 0, "\u2581world": 1}
    backend = tokenizers.Tokenizer(models.WordLevel(words, unk_token="\u2581Hello"))
    backend.decoder = decoders.Metaspace()
    assert Detokenizer(backend).push(1) == "world"
    assert Detokenizer(backend, context_ids=[0]).push(1) == " world"


def test_a_context_that_would_begin_in_a_character_holds_nothing_up() -> None:
    context = BACKEND.encode("\U00010348abcde").ids
    assert BACKEND.decode(context[-6:]).startswith("\ufffd")
    detokenizer = Detokenizer(BACKEND, context_ids=context)
    assert all(map(detokenizer.push, BACKEND.encode("xyz").ids))
