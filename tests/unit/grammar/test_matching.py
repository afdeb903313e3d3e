"""How far an answer has come: what may follow, going back, and ends."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire_engine.grammar.compiler import Compiler
from quire_engine.grammar.expressions import check_expression
from quire_engine.grammar.matching import GrammarState
from quire_engine.grammar.refusal import SchemaError
from quire_engine.grammar.writing import decode_spec, encode_spec
from quire_engine.protocol.grammar import (
    ChoiceGrammar,
    EbnfGrammar,
    Grammar,
    GrammarKind,
    GrammarSpec,
    GrammarTag,
    JsonObjectGrammar,
    JsonSchemaGrammar,
    RegexGrammar,
    TaggedGrammar,
    Vocabulary,
)
from tests.unit.grammar.walks import END, VOCABULARY, accepts, compile_spec, compiler


def state_of(pattern: str, stops: tuple[int, ...] = (END,)) -> GrammarState:
    return GrammarState(compile_spec(RegexGrammar(pattern)), stops)


def follow(state: GrammarState, text: str) -> GrammarState:
    for byte in text.encode():
        assert state.advance(byte)
    return state


def test_where_nothing_can_follow_the_answer_is_finished() -> None:
    assert not follow(state_of("ab"), "a").is_finished
    assert follow(state_of("ab"), "ab").is_finished


def test_an_end_token_may_come_only_where_the_grammar_may_end() -> None:
    assert END not in state_of("a+").permitted()
    state = follow(state_of("a+"), "aa")
    assert END in state.permitted()
    ends = [state.is_finished, state.advance(END), state.is_finished, state.advance(ord("a"))]
    assert ends == [False, True, True, False]


def test_an_end_token_that_does_not_end_the_request_never_comes() -> None:
    state = follow(state_of("ab?", stops=()), "a")
    assert state.permitted() == [ord("b")]
    assert follow(state, "b").is_finished


def test_a_vocabulary_without_end_tokens_ends_where_nothing_follows() -> None:
    bytes_alone = Vocabulary(
        tokens=tuple(bytes([byte]) for byte in range(256)), width=256, end_token_ids=()
    )
    compiled = Compiler(bytes_alone).compile(Grammar(GrammarKind.REGEX, "ab?"))
    state = GrammarState(compiled, ())
    assert follow(state, "a").permitted() == [ord("b")]
    assert follow(state, "b").is_finished


def test_tokens_beyond_the_vocabulary_and_control_tokens_never_come() -> None:
    permitted = state_of(".+").permitted()
    assert max(permitted) < len(VOCABULARY.tokens)
    assert END not in permitted


def test_a_token_that_may_not_come_changes_nothing() -> None:
    state = follow(state_of("abc"), "a")
    assert not state.advance(ord("x"))
    assert state.permitted() == [ord("b")]


@settings(deadline=None)
@given(st.lists(st.integers(0, 12), max_size=8), st.integers(0, 2**32))
def test_going_anywhere_is_like_coming_there_first(places: list[int], seed: int) -> None:
    compiled = compile_spec(JsonObjectGrammar())
    chance, tokens = Random(seed), []
    leader = GrammarState(compiled, [END])
    masks = [leader.mask.copy()]
    for _ in range(12):
        tokens.append(chance.choice(leader.permitted()))
        leader.advance(tokens[-1])
        masks.append(leader.mask.copy())
        if leader.is_finished:
            break
    state = GrammarState(compiled, [END])
    for place in places:
        count = min(place, len(tokens))
        if count < len(tokens) or not leader.is_finished:
            state.go_to(tokens[:count])
            assert np.array_equal(state.mask, masks[count])
            assert not state.is_finished


def test_other_tokens_than_those_accepted_are_followed_from_where_they_part() -> None:
    state = follow(state_of("a(bc|de)"), "ab")
    state.go_to(list(b"ad"))
    assert state.permitted() == [ord("e")]


@pytest.mark.parametrize(
    ("spec", "right", "wrong"),
    [
        (RegexGrammar("^\\d+(\\.\\d+)?$"), ["1", "2.50"], ["", ".5", "1."]),
        (ChoiceGrammar(("yes", "no", 'qu"ote', "é\n")), ["yes", 'qu"ote', "é\n"], ["y", "yesno"]),
        (EbnfGrammar('root ::= "a" root "b" | ""'), ["", "aabb"], ["aab"]),
        (JsonObjectGrammar(), ["{}", '{"a": [1, {"b": null}]}'], ["[]", "1", "{} "]),
        (JsonSchemaGrammar({"const": 5}), ["5"], ["6"]),
        (
            TaggedGrammar(
                (GrammarTag("<f>", {"const": 1}, "</f>"), GrammarTag("<g>", True, "</g>")),
                separator="\n",
                is_single=False,
            ),
            ["<f>1</f>", '<g>{"a":2}</g>\n<f>1</f>'],
            ["", "<f>2</f>", "<f>1</f>\n", "<f>1</f> "],
        ),
        (TaggedGrammar((GrammarTag("x", {"const": 1}, "y"),)), ["x1y"], ["x1yx1y", "1"]),
    ],
)
def test_each_kind_of_grammar(spec: GrammarSpec, right: list[str], wrong: list[str]) -> None:
    assert decode_spec(encode_spec(spec)) == spec
    compiled = compile_spec(spec)
    assert [text for text in right if not accepts(compiled, text)] == []
    assert [text for text in wrong if accepts(compiled, text)] == []


@pytest.mark.parametrize("text", ["root ::= missing", "start ::= 1", "root ::= (", ""])
def test_text_that_is_no_grammar_is_refused_without_the_compilers_insides(text: str) -> None:
    with pytest.raises(SchemaError) as caught:
        compiler().compile(Grammar(GrammarKind.EBNF, text))
    assert ".cc" not in str(caught.value)


@pytest.mark.parametrize(
    "pattern",
    ["(?=a)b", "a(?!b)", "(a)\\1", "\\bword", "\\Aa", "a\\Z", "\\p{L}", "[[:alpha:]]", "x^y", "a$b",
     "(?i)a", "(?P<n>a)", "\\N", "\\u12", "(", "[b-a]", "a" * 5000],
)  # fmt: skip
def test_an_expression_that_would_be_read_otherwise_is_refused(pattern: str) -> None:
    with pytest.raises(SchemaError):
        check_expression(pattern)


@pytest.mark.parametrize(
    ("pattern", "taken"),
    [("^a$", "a"), ("a\\$", "a\\$"), ("^(?:a|b)$", "(?:a|b)"), ("[$^a]", "[$^a]"), ("\\^", "\\^")],
)
def test_outer_anchors_alone_are_left_out(pattern: str, taken: str) -> None:
    assert check_expression(pattern) == taken


def test_words_that_the_compiler_reads_by_itself_are_what_they_say() -> None:
    compiled = compile_spec(RegexGrammar("[$^a]+\\^\\x41"))
    assert accepts(compiled, "$^a^A")
    assert not accepts(compiled, "b^A")
