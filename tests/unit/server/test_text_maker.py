"""Text of tokens: the same however they come, never half a character, cut where a stop ends it."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire_engine.protocol.messages import FinishReason, TokenDelta
from quire_engine.protocol.sampling import SamplingParams, TokenLogprobs
from quire_engine.server.text_maker import Piece, ReasoningChoices, TextChoices, TextMaker
from quire_engine.tokenizing.reasoning import ReasoningStart
from quire_engine.tokenizing.simple import build_simple_tokenizer
from quire_engine.tokenizing.tokenizer import Tokenizer
from tests.unit.tokenizing.builders import train_byte_level

BYTES = build_simple_tokenizer()
BPE = Tokenizer(train_byte_level(), bos_token_id=None, eos_token_ids=(), chat_template=None)
TOKENIZERS = {"bytes": BYTES, "byte-level BPE": BPE}
TEXT = st.text(
    st.sampled_from("ab .é\u00df\u0301中文\u3042한\U0001f600\U0001f468\u200d\U0001f469\ufe0f")
    | st.characters(codec="utf-8"),
    max_size=24,
)


@st.composite
def texts_with_stops(draw: st.DrawFn) -> tuple[str, tuple[str, ...]]:
    """Stop strings that are in the text, that nearly are, and that are not."""
    text = draw(TEXT)
    stops = draw(st.lists(st.text("ab中\U0001f600", min_size=1, max_size=3), max_size=2))
    for _ in range(draw(st.integers(0, 2))):
        start = draw(st.integers(0, len(text)))
        stops.append(
            text[start : start + draw(st.integers(1, 5))] + draw(st.sampled_from(["", "a"]))
        )
    return text, tuple(filter(None, stops))


def cut_by_reading(text: str, stops: tuple[str, ...], includes: bool) -> tuple[str, str | None]:
    """Character by character; the first end wins, then the longest."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            stop = max(found, key=len)
            return text[: end if includes else end - len(stop)], stop
    return text, None


def score(token_id: int) -> TokenLogprobs:
    return TokenLogprobs(logprob=-float(token_id), rank=1)


def make(
    token_ids: list[int],
    *,
    tokenizer: Tokenizer = BYTES,
    cuts: tuple[int, ...] = (),
    finish: FinishReason = FinishReason.LENGTH,
    sampling: dict[str, Any] | None = None,
    **choices: Any,
) -> tuple[TextMaker, list[Piece]]:
    """Give tokens in deltas that end at `cuts`, and the last one with the finish reason."""
    prompt = tokenizer.encode("hi")
    params = SamplingParams(max_tokens=100, num_logprobs=0, **(sampling or {}))
    maker = TextMaker(tokenizer, prompt, params, TextChoices(**choices))
    borders = sorted({min(cut, len(token_ids)) for cut in cuts} | {0, len(token_ids)})
    spans = list(pairwise(borders)) or [(0, 0)]
    pieces = []
    for start, end in spans:
        ids = token_ids[start:end]
        delta = TokenDelta(
            request_id="r",
            token_ids=ids,
            finish_reason=finish if end == len(token_ids) else None,
            logprobs=[score(token_id) for token_id in ids],
            prompt_logprobs=[score(token_id) for token_id in prompt[1:]] if start == 0 else None,
        )
        pieces.append(maker.take(delta))
        if maker.finish_reason is not None:
            break
    return maker, pieces


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(deadline=None, max_examples=300)
@given(
    case=texts_with_stops(),
    includes=st.booleans(),
    cuts=st.lists(st.integers(0, 60), max_size=6).map(tuple),
)
def test_any_cut_of_any_text_gives_what_reading_gives(
    name: str, case: tuple[str, tuple[str, ...]], includes: bool, cuts: tuple[int, ...]
) -> None:
    text, stops = case
    tokenizer = TOKENIZERS[name]
    token_ids = tokenizer.encode(text)
    expected, found = cut_by_reading(text, stops, includes)
    maker, pieces = make(
        token_ids, tokenizer=tokenizer, cuts=cuts, stops=stops, includes_stop=includes
    )
    one_by_one = make(
        token_ids,
        tokenizer=tokenizer,
        cuts=tuple(range(len(token_ids))),
        stops=stops,
        includes_stop=includes,
    )

    assert "".join(piece.text for piece in pieces) == expected
    assert maker.finish_reason == ("length" if found is None else "stop")
    assert maker.stop_reason == found
    assert all("\ufffd" not in piece.text for piece in pieces) or "\ufffd" in text
    tokens = [token for piece in pieces for token in piece.tokens or []]
    assert [token.token_id for token in tokens] == token_ids[: maker.num_generated]
    assert tokens == [token for piece in one_by_one[1] for token in piece.tokens or []]
    assert one_by_one[0].num_generated == maker.num_generated
    assert all(token.score == score(token.token_id) for token in tokens)


@settings(deadline=None)
@given(texts_with_stops())
def test_tokens_up_to_the_end_of_the_stop_count_and_no_more(
    case: tuple[str, tuple[str, ...]],
) -> None:
    text, stops = case
    maker, _ = make(BYTES.encode(text), stops=stops)
    shown, found = cut_by_reading(text, stops, includes=True)
    assert maker.num_generated == len((shown if found else text).encode())


@settings(deadline=None)
@given(texts_with_stops())
def test_no_more_is_held_back_than_a_stop_string_may_need(
    case: tuple[str, tuple[str, ...]],
) -> None:
    text, stops = case
    token_ids = BYTES.encode(text)
    maker = TextMaker(BYTES, [], SamplingParams(max_tokens=100), TextChoices(stops=stops))
    most = max((len(stop) for stop in stops), default=1) - 1
    shown = ""
    for num_bytes, token_id in enumerate(token_ids, start=1):
        shown += maker.take(TokenDelta(request_id="r", token_ids=[token_id])).text
        if maker.finish_reason is not None:
            return
        whole = text.encode()[:num_bytes].decode(errors="ignore")
        assert whole.startswith(shown)
        assert len(shown) >= len(whole) - most


@settings(deadline=None)
@given(TEXT)
def test_offsets_are_the_whole_characters_before_a_token(text: str) -> None:
    token_ids = BYTES.encode(text)
    _, pieces = make(token_ids)
    tokens = [token for piece in pieces for token in piece.tokens or []]
    for index, token in enumerate(tokens):
        assert token.offset == len(bytes(token_ids[:index]).decode(errors="ignore"))


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(deadline=None)
@given(text=TEXT)
def test_bytes_of_tokens_joined_are_the_texts(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    assert b"".join(map(tokenizer.spelling.bytes_of, tokenizer.encode(text))) == text.encode()


def test_half_a_character_at_the_end_is_shown_as_such() -> None:
    _, pieces = make(list("é".encode())[:1], cuts=(0, 1))
    assert "".join(piece.text for piece in pieces) == "\ufffd"


def test_a_stop_token_is_no_part_of_the_text_unless_wanted() -> None:
    how: dict[str, Any] = {"finish": FinishReason.STOP, "sampling": {"stop_token_ids": (33,)}}
    maker, pieces = make(list(b"Hi!"), **how)
    assert ("".join(p.text for p in pieces), maker.num_generated) == ("Hi", 3)
    assert (maker.finish_reason, maker.stop_reason) == ("stop", 33)
    _, pieces = make(list(b"Hi!"), includes_stop=True, **how)
    assert "".join(piece.text for piece in pieces) == "Hi!"


def test_an_end_without_a_stop_token_keeps_the_whole_text() -> None:
    maker, pieces = make(list(b"Hi!"), finish=FinishReason.STOP)
    assert "".join(piece.text for piece in pieces) == "Hi!"
    assert (maker.finish_reason, maker.stop_reason) == ("stop", None)


@pytest.mark.parametrize(
    ("min_tokens", "expected"),
    [(0, "a"), (2, "a"), (3, "a-b-c"), (6, "a-b-c"), (7, "a-b-c--d")],
)
def test_no_stop_string_ends_among_the_first_tokens(min_tokens: int, expected: str) -> None:
    """They end at the third and seventh character, which are tokens."""
    for cuts in ((), tuple(range(9))):
        _, pieces = make(
            list(b"a-b-c--d"),
            cuts=cuts,
            sampling={"min_tokens": min_tokens},
            stops=("--", "-b"),
        )
        assert "".join(piece.text for piece in pieces) == expected


def test_an_echo_comes_first_with_its_scores() -> None:
    maker, pieces = make(list(b"!?"), cuts=(1,), echo="hi")
    assert [piece.text for piece in pieces] == ["hi!", "?"]
    tokens = [token for piece in pieces for token in piece.tokens or []]
    assert [token.token_id for token in tokens] == [104, 105, 33, 63]
    assert [token.offset for token in tokens] == [0, 1, 2, 3]
    assert tokens[0].score is None
    assert tokens[1].score == score(105)
    assert maker.num_generated == 2


def test_an_echo_alone_has_no_output() -> None:
    maker, pieces = make(list(b"!?"), cuts=(1,), echo="hi", is_echo_only=True)
    assert [piece.text for piece in pieces] == ["hi"]
    assert len(pieces[0].tokens or []) == 2
    assert (maker.num_generated, maker.finish_reason) == (0, "length")


def thinks(start: ReasoningStart | None) -> ReasoningChoices:
    return ReasoningChoices(start)


def joined(pieces: list[Piece]) -> tuple[str, str]:
    return "".join(piece.reasoning for piece in pieces), "".join(piece.text for piece in pieces)


@settings(deadline=None)
@given(
    reasoning=TEXT,
    answer=TEXT,
    is_closed=st.booleans(),
    stops=st.lists(st.text("ab中<>/k", min_size=1, max_size=3), max_size=2),
    cuts=st.lists(st.integers(0, 60), max_size=6).map(tuple),
)
def test_any_cut_of_a_reasoning_gives_the_same_two_texts(
    reasoning: str, answer: str, is_closed: bool, stops: list[str], cuts: tuple[int, ...]
) -> None:
    text = f"<think>{reasoning}" + (f"</think>{answer}" if is_closed else "")
    token_ids = BPE.encode(text)
    wanted: dict[str, Any] = {"stops": tuple(stops), "reasoning": thinks(ReasoningStart.OUTSIDE)}
    maker, pieces = make(token_ids, tokenizer=BPE, cuts=cuts, **wanted)
    each, one_by_one = make(token_ids, tokenizer=BPE, cuts=tuple(range(len(token_ids))), **wanted)

    assert joined(pieces) == joined(one_by_one)
    assert maker.num_reasoning == each.num_reasoning
    assert (maker.finish_reason, maker.stop_reason) == (each.finish_reason, each.stop_reason)
    tokens = [token for piece in pieces for token in piece.tokens or []]
    assert [token.token_id for token in tokens] == token_ids[: maker.num_generated]
    shown, _ = cut_by_reading(text, tuple(stops), includes=False)
    if shown.startswith("<think>"):
        before, _, after = shown.removeprefix("<think>").partition("</think>")
        assert joined(pieces) == (before, after)
    else:
        assert joined(pieces) == ("", shown)


def test_a_stop_string_ends_a_reasoning_and_what_was_held_back_is_shown() -> None:
    choices: dict[str, Any] = {
        "stops": ("STOP",), "reasoning": thinks(ReasoningStart.INSIDE), "tokenizer": BYTES,
    }  # fmt: skip
    maker, pieces = make(list(b"well </thSTOP more"), **choices)

    assert joined(pieces) == ("well </th", "")
    assert (maker.finish_reason, maker.stop_reason) == ("stop", "STOP")
    assert maker.num_reasoning == maker.num_generated == len("well </thSTOP")


@pytest.mark.parametrize("text", ["<think>never closed", "never closed"])
def test_without_the_tag_that_closes_it_all_is_reasoning(text: str) -> None:
    maker, pieces = make(list(text.encode()), reasoning=thinks(ReasoningStart.INSIDE))

    assert joined(pieces) == ("never closed", "")
    assert (maker.finish_reason, maker.num_reasoning) == ("length", len(text))


def test_where_none_can_come_tags_are_text() -> None:
    maker, pieces = make(list(b"<think>a</think>b"), reasoning=thinks(None))

    assert joined(pieces) == ("", "<think>a</think>b")
    assert maker.num_reasoning == 0
    assert make(list(b"a"))[0].num_reasoning is None


def test_tags_that_are_control_tokens_are_found_though_they_are_not_shown() -> None:
    backend = train_byte_level()
    backend.add_special_tokens(["<think>", "</think>"])
    tokenizer = Tokenizer(backend, bos_token_id=None, eos_token_ids=(), chat_template=None)
    token_ids = tokenizer.encode("<think>so</think>thus")
    maker, pieces = make(token_ids, tokenizer=tokenizer, reasoning=thinks(ReasoningStart.OUTSIDE))

    assert joined(pieces) == ("so", "thus")
    assert maker.num_reasoning == token_ids.index(tokenizer.encode("</think>")[0]) + 1
