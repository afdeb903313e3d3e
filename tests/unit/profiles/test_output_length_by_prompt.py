"""Estimates by the length of prompts, each leaning on the one for all."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire_engine.profiles.output_length_by_prompt import OutputLengthByPrompt, class_of


def learn(outcomes: list[tuple[int, int]]) -> OutputLengthByPrompt:
    """Learn (prompt, output) lengths."""
    lengths = OutputLengthByPrompt()
    for num_prompt_tokens, num_tokens in outcomes:
        lengths.add(num_prompt_tokens, num_tokens, ended=True, number=lengths.begin())
    lengths.refresh(())
    return lengths


def test_prompts_of_different_lengths_have_answers_of_different_lengths() -> None:
    lengths = learn([(100, 50), (3000, 400)] * 500)
    assert lengths.curve(100).longer_than(60) < 0.02
    assert lengths.curve(3000).longer_than(60) > 0.98
    assert lengths.overall.curve().longer_than(60) == pytest.approx(0.5, abs=0.01)


def test_a_class_that_was_never_seen_is_answered_like_all() -> None:
    lengths = learn([(100, 50), (3000, 400)] * 500)
    overall = lengths.overall.curve()
    for num_tokens in (10, 60, 300, 500):
        expected = overall.longer_than(num_tokens)
        assert lengths.curve(200_000).longer_than(num_tokens) == pytest.approx(expected)


def test_a_class_that_has_seen_few_lies_between_them_and_all() -> None:
    lengths = learn([*[(100, 50)] * 500, (3000, 400), (3000, 400)])
    assert 0.1 < lengths.curve(3000).longer_than(60) < 0.5
    assert lengths.curve(100).longer_than(60) < 0.05


def test_requests_that_run_count_in_their_class_alone() -> None:
    lengths = learn([(100, 50), (3000, 50)] * 20)
    numbers = [lengths.begin() for _ in range(50)]
    before = lengths.curve(3000).longer_than(60)
    lengths.refresh((3000, 200, number) for number in numbers)
    assert lengths.curve(3000).longer_than(60) > before + 0.3
    assert lengths.curve(100).longer_than(60) < 0.3


@given(st.lists(st.tuples(st.integers(1, 9000), st.integers(0, 5000)), max_size=40))
def test_every_class_has_a_curve_that_falls(outcomes: list[tuple[int, int]]) -> None:
    lengths = learn(outcomes)
    for num_prompt_tokens in (1, 90, 1500, 9000):
        curve = lengths.curve(num_prompt_tokens)
        values = [curve.longer_than(num_tokens) for num_tokens in (0, 3, 30, 300, 3000, 30_000)]
        # at the border of two buckets the same probability is rounded twice
        assert all(b <= a * (1 + 1e-12) for a, b in itertools.pairwise(values))
        assert 0.0 < min(values) <= max(values) <= 1.0 + 1e-12


def test_classes_fade_as_others_are_served() -> None:
    """A class that answers at length now, and seldom comes, is not held to its past."""
    source = random.Random(0)
    lengths = learn([(3000, 20)] * 1000)
    for index in range(20_000):
        prompt, output = (3000, 500) if index % 20 == 0 else (100, source.randint(10, 90))
        lengths.add(prompt, output, ended=True, number=lengths.begin())
    lengths.refresh(())
    assert lengths.curve(3000).longer_than(100) > 0.5


def test_two_classes_make_an_octave() -> None:
    assert [class_of(n) for n in (1024, 1448, 1449, 2047, 2048)] == [21, 21, 22, 22, 23]
