"""Reasoning and answer: the same however the text is cut, by the rules for every prompt."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire_engine.tokenizing.chat_template import ChatTemplate
from quire_engine.tokenizing.reasoning import (
    CLOSE_TAG,
    MAX_SPACE_CHARACTERS,
    OPEN_TAG,
    ReasoningSplitter,
    ReasoningStart,
    choose_parser,
    find_start,
)

INSIDE, OUTSIDE = ReasoningStart.INSIDE, ReasoningStart.OUTSIDE
PARTS = st.sampled_from(
    [OPEN_TAG, CLOSE_TAG, "<", "</", "</thi", "<think", "think>", "\n", " ", "a", "é😀", ">"]
)
TEXT = st.lists(PARTS, max_size=12).map("".join)
QWEN3 = "{{ messages }}<think>{% if enable_thinking is false %}</think>{% endif %}"


def split_by_reading(text: str, start: ReasoningStart) -> tuple[str, str]:
    """Look at the whole text at once."""
    bare = text.lstrip()
    if bare.startswith(OPEN_TAG) and len(text) - len(bare) <= MAX_SPACE_CHARACTERS:
        text = bare.removeprefix(OPEN_TAG)
    elif start is OUTSIDE:
        return "", text
    reasoning, _, answer = text.partition(CLOSE_TAG)
    return reasoning, answer


def split(pieces: list[str], start: ReasoningStart) -> tuple[str, str, int]:
    splitter = ReasoningSplitter(start)
    shown = []
    for piece in pieces:
        shown.append(splitter.push(piece))
        splitter.note_token()
    shown.append(splitter.finish())
    reasoning, answer = ("".join(texts) for texts in zip(*shown, strict=True))
    return reasoning, answer, splitter.num_tokens


@given(text=TEXT, start=st.sampled_from([INSIDE, OUTSIDE]), cuts=st.sets(st.integers(0, 60)))
def test_any_cut_gives_what_reading_the_whole_text_gives(
    text: str, start: ReasoningStart, cuts: set[int]
) -> None:
    borders = sorted({0, len(text)} | {cut for cut in cuts if cut < len(text)})
    pieces = [text[first:last] for first, last in pairwise(borders)]

    assert split(pieces, start)[:2] == split_by_reading(text, start)


@given(text=TEXT, start=st.sampled_from([INSIDE, OUTSIDE]))
def test_tokens_of_the_reasoning_end_with_the_tag_that_closes_it(
    text: str, start: ReasoningStart
) -> None:
    reasoning, answer, num_tokens = split(list(text), start)

    if start is OUTSIDE and answer == text:
        assert num_tokens == 0
    else:
        assert num_tokens == len(text) - len(answer)
        assert text[:num_tokens].endswith(CLOSE_TAG) or num_tokens == len(text)
    assert CLOSE_TAG not in reasoning


@pytest.mark.parametrize("num_spaces", [MAX_SPACE_CHARACTERS, MAX_SPACE_CHARACTERS + 1])
def test_white_space_before_the_tag_is_waited_for_within_bounds(num_spaces: int) -> None:
    text = " " * num_spaces + "<think>a</think>b"
    expected = split_by_reading(text, OUTSIDE)

    assert split([text], OUTSIDE)[:2] == split(list(text), OUTSIDE)[:2] == expected
    assert (expected == ("a", "b")) == (num_spaces == MAX_SPACE_CHARACTERS)


@pytest.mark.parametrize(
    ("prompt", "qwen3", "deepseek_r1"),
    [
        ("user: hi\nassistant:", OUTSIDE, INSIDE),
        ("user: hi\nassistant:<think>\n", INSIDE, INSIDE),
        ("user: hi\nassistant:<think>\n\n</think>\n\n", None, None),
        ("user: what is <think>?\nassistant:", OUTSIDE, INSIDE),
        ("assistant:<think>a</think>b\nuser: and?\nassistant:", OUTSIDE, INSIDE),
        ("", OUTSIDE, INSIDE),
    ],
)
def test_the_end_of_the_prompt_says_where_the_answer_begins(
    prompt: str, qwen3: ReasoningStart | None, deepseek_r1: ReasoningStart | None
) -> None:
    assert find_start("qwen3", prompt) is qwen3
    assert find_start("deepseek_r1", prompt) is deepseek_r1


@pytest.mark.parametrize(
    ("before", "continued", "start"),
    [
        ("assistant:", "<think>So far", INSIDE),
        ("assistant:", "<think>So far</think>Then", None),
        ("assistant:<think>\n", "So far", INSIDE),
        ("assistant:<think>\n\n</think>\n", "So far", None),
        ("assistant:", "Half an answer", None),
    ],
)
def test_a_message_that_is_continued_says_it_too(
    before: str, continued: str, start: ReasoningStart | None
) -> None:
    for parser in ("qwen3", "deepseek_r1"):
        assert find_start(parser, before + continued, continued) is start


@pytest.mark.parametrize(
    ("name", "source", "parser"),
    [
        ("auto", QWEN3, "qwen3"),
        ("auto", "<\uff5cAssistant\uff5c>{{ content.split('</think>')[-1] }}", "deepseek_r1"),
        ("auto", "{{ messages[0].content }}", None),
        ("auto", None, None),
        ("none", QWEN3, None),
        ("deepseek_r1", QWEN3, "deepseek_r1"),
        ("qwen3", None, "qwen3"),
    ],
)
def test_the_template_shows_which_parser_a_model_needs(
    name: str, source: str | None, parser: str | None
) -> None:
    template = None if source is None else ChatTemplate(source)
    assert choose_parser(name, template) == parser
