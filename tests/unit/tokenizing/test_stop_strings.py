"""Stop strings, at every border between pieces of text."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire_engine.tokenizing.stop_strings import StopStrings

TEXT = st.text(alphabet="ab#é🙂", max_size=30)
STOPS = st.lists(st.text(alphabet="ab#é🙂", min_size=1, max_size=4), max_size=3)


def reference(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Read character by character; the first end wins, then the longest."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            stop = max(found, key=len)
            return text[: end - len(stop)], stop
    return text, None


def run(pieces: list[str], stops: list[str], **options: bool) -> tuple[str, str | None]:
    checker = StopStrings(stops, **options)
    shown = "".join(map(checker.push, pieces)) + checker.finish()
    return shown, checker.found


@settings(deadline=None)
@given(TEXT, STOPS, st.lists(st.integers(0, 30), max_size=8))
def test_pieces_give_what_reading_by_character_gives(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    edges = [0, *sorted(cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges)] + [text[max(edges) :]]
    expected = reference("".join(pieces), stops)
    assert run(pieces, stops) == expected
    assert run(list("".join(pieces)), stops) == expected


@settings(deadline=None)
@given(TEXT, STOPS)
def test_no_more_is_held_than_a_stop_string_may_need(text: str, stops: list[str]) -> None:
    checker = StopStrings(stops)
    shown = ""
    for index, character in enumerate(text):
        shown += checker.push(character)
        if checker.found is None:
            most = max((len(stop) for stop in stops), default=1) - 1
            assert text[: max(index + 1 - most, 0)] == shown[: max(index + 1 - most, 0)]
            assert text.startswith(shown)


def test_every_border_of_a_stop_string() -> None:
    for cut in range(len("Hello###World") + 1):
        pieces = ["Hello###World"[:cut], "Hello###World"[cut:]]
        assert run(pieces, ["###"]) == ("Hello", "###")


def test_the_stop_string_may_be_part_of_the_output() -> None:
    assert run(list("Hello###World"), ["###"], include_stop=True) == ("Hello###", "###")


def test_the_earliest_end_wins() -> None:
    assert run(["abcdef"], ["bcdef", "cd"]) == ("ab", "cd")
    assert run(["abc"], ["c", "bc"]) == ("a", "bc")


def test_what_only_looked_like_a_stop_is_shown_at_the_end() -> None:
    checker = StopStrings(["###"])
    assert checker.push("a##") == "a"
    assert checker.finish() == "##"
    assert checker.found is None


def test_text_after_a_stop_is_dropped() -> None:
    checker = StopStrings(["."])
    assert checker.push("one. two.") == "one"
    assert checker.push(" three") + checker.finish() == ""


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        StopStrings(["a", ""])
