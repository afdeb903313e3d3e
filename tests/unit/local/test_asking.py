"""One question to a server, and each way its answer can go."""

from dataclasses import replace

import pytest

from quire_local.asking import AnswerError, Question, stream_answer
from tests.unit.local.stand_in import StandIn


def _question(*, is_raw: bool = False) -> Question:
    return Question(text="Capital?", max_tokens=7, temperature=0.5, is_raw=is_raw)


def test_a_question_is_put_into_a_chat_and_the_answer_comes_in_pieces() -> None:
    server = StandIn()
    with server.serve() as url:
        pieces = [piece for piece in stream_answer(url, _question()) if piece]
    assert pieces == ["Par", "is", "."]
    assert server.requests == [
        (
            "/v1/chat/completions",
            {
                "model": "demo",
                "stream": True,
                "max_tokens": 7,
                "temperature": 0.5,
                "messages": [{"role": "user", "content": "Capital?"}],
            },
        )
    ]


def test_what_else_is_chosen_goes_with_the_question() -> None:
    server = StandIn()
    choices = {"top_p": 0.5, "stop": ["\n"]}
    with server.serve() as url:
        list(stream_answer(url, replace(_question(), choices=choices)))
    [(_, body)] = server.requests
    assert body.items() >= choices.items()


def test_raw_text_is_continued_as_it_is() -> None:
    server = StandIn()
    with server.serve() as url:
        assert "".join(stream_answer(url, _question(is_raw=True))) == "Paris."
    [(path, body)] = server.requests
    assert path == "/v1/completions"
    assert body["prompt"] == "Capital?"


def test_a_refusal_is_told_with_the_way_around_the_template() -> None:
    with StandIn(refusal="no template").serve() as url:
        with pytest.raises(AnswerError, match=r"^no template \(--raw sends the text"):
            list(stream_answer(url, _question()))
        with pytest.raises(AnswerError, match=r"^no template$"):
            list(stream_answer(url, _question(is_raw=True)))
    with (
        StandIn(refusal="too long").serve() as url,
        pytest.raises(AnswerError, match=r"^too long$"),
    ):
        list(stream_answer(url, _question()))


def test_an_error_in_the_stream_comes_after_the_text_before_it() -> None:
    with StandIn(stream_error="core died").serve() as url:
        answer = stream_answer(url, _question())
        assert [next(answer) for _ in range(4)] == ["", "Par", "is", "."]
        with pytest.raises(AnswerError, match="core died"):
            next(answer)


def test_a_stream_that_is_cut_off_is_an_error() -> None:
    with (
        StandIn(is_cut_off=True).serve() as url,
        pytest.raises(AnswerError, match="the server broke off"),
    ):
        list(stream_answer(url, _question()))


def test_a_server_that_is_gone_is_an_error() -> None:
    with pytest.raises(AnswerError, match="the server broke off"):
        list(stream_answer("http://127.0.0.1:9", _question()))
