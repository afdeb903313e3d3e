"""Grammars are tried in processes that can be killed, once for all who want the same."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress

import msgspec
import pytest

from quire_engine.config import EngineConfig, ExecutorConfig
from quire_engine.errors import RequestError
from quire_engine.protocol.grammar import (
    ChoiceGrammar,
    EbnfGrammar,
    GrammarKind,
    GrammarSpec,
    JsonObjectGrammar,
    JsonSchemaGrammar,
    RegexGrammar,
    Vocabulary,
)
from quire_engine.server.errors import ApiError
from quire_engine.server.grammar_process import TrialSetup, make_vocabulary
from quire_engine.server.grammars import Grammars
from quire_engine.server.metrics import ServerMetrics
from quire_engine.tokenizing.simple import build_simple_tokenizer
from tests.api.servers import children_of, is_alive, wait_until_async

CONFIG = EngineConfig(executor=ExecutorConfig(simulate="h100", model_shape="llama3-8b"))
ENDLESS = "(([a-z]{1,900}x?){1,900}y?){1,900}z"
"""Takes minutes to compile."""
PROCESS = "quire_engine.server.grammar_process"


class Case:
    """Grammars of a simulated model, and what came of them."""

    def __init__(self) -> None:
        self.vocabularies: list[bytes] = []
        self.metrics = ServerMetrics("model").grammars
        setup = TrialSetup(config=CONFIG, model_path=None, width=300)
        self.grammars = Grammars(setup, self.metrics, self.vocabularies.append)


@pytest.fixture
async def case() -> AsyncIterator[Case]:
    made = Case()
    yield made
    await made.grammars.close()


async def test_a_grammar_is_tried_once_for_all_who_want_it(case: Case) -> None:
    wish = JsonObjectGrammar()
    several = await asyncio.gather(*[case.grammars.prepare(wish) for _ in range(5)])
    again = await case.grammars.prepare(wish)
    assert {grammar.kind for grammar in several} == {GrammarKind.EBNF}
    assert {grammar.key for grammar in [*several, again]} == {again.key}
    assert sum(case.metrics.seconds.counts.counts) == 1
    assert sum(case.metrics.seconds.counts.counts) == 1
    assert case.metrics.hits.value == 1


async def test_what_tokens_stand_for_is_told_before_the_first_grammar(case: Case) -> None:
    assert case.vocabularies == []
    await case.grammars.prepare(ChoiceGrammar(("a", "b")))
    told = msgspec.msgpack.decode(case.vocabularies[0], type=Vocabulary)
    assert told == make_vocabulary(build_simple_tokenizer(), 300)
    assert told.tokens[65] == b"A"


async def test_a_refusal_names_the_field_and_is_kept(case: Case) -> None:
    for _ in range(2):
        with pytest.raises(RequestError, match=r"guided_json: .*uniqueItems") as caught:
            await case.grammars.prepare(
                JsonSchemaGrammar({"type": "array", "uniqueItems": True}, "guided_json")
            )
        assert caught.value.parameter == "guided_json"
    assert case.metrics.failures.value == 1


async def test_a_grammar_that_never_gets_done_is_killed_and_the_next_is_compiled(
    case: Case,
) -> None:
    slow = asyncio.ensure_future(case.grammars.prepare(RegexGrammar(ENDLESS)))
    beside = await case.grammars.prepare(RegexGrammar("[a-z]{3}"))
    with pytest.raises(RequestError, match="make it simpler"):
        await slow
    after = await case.grammars.prepare(RegexGrammar("[a-z]{4}"))
    assert (beside.text, after.text) == ("[a-z]{3}", "[a-z]{4}")


async def test_a_process_that_was_killed_while_it_was_free_is_replaced(case: Case) -> None:
    await case.grammars.prepare(RegexGrammar("[a-z]{3}"))
    (pid,) = children_of(os.getpid(), PROCESS)
    os.kill(pid, signal.SIGKILL)
    await wait_until_async(lambda: not is_alive(pid))
    await asyncio.sleep(0)

    with suppress(ApiError):  # where the loop has not heard of its end yet
        await case.grammars.prepare(RegexGrammar("[a-z]{4}"))
    assert (await case.grammars.prepare(RegexGrammar("[a-z]{4}"))).text == "[a-z]{4}"


async def test_a_process_that_others_kill_says_nothing_of_the_grammar(case: Case) -> None:
    await case.grammars.prepare(RegexGrammar("[a-z]{3}"))
    (pid,) = children_of(os.getpid(), PROCESS)
    os.kill(pid, signal.SIGSTOP)  # it will not answer before its end
    wanted = asyncio.ensure_future(case.grammars.prepare(RegexGrammar("[a-z]{4}")))
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)

    with suppress(ApiError):  # where it had not been asked yet
        await wanted
    assert (await case.grammars.prepare(RegexGrammar("[a-z]{4}"))).text == "[a-z]{4}"
    assert case.metrics.failures.value == 0


async def test_who_waits_for_a_grammar_as_the_server_is_drained_is_told_so(case: Case) -> None:
    waiting = asyncio.ensure_future(case.grammars.prepare(RegexGrammar(ENDLESS)))
    await asyncio.sleep(0)  # it is asked for now
    case.grammars.give_up()
    with pytest.raises(ApiError, match="drained") as caught:
        await waiting
    assert caught.value.status == 503


async def test_a_text_that_no_tokens_spell_is_refused(case: Case) -> None:
    setup = TrialSetup(config=CONFIG, model_path=None, width=100)  # no token is "z"
    grammars = Grammars(setup, case.metrics, case.vocabularies.append)
    try:
        with pytest.raises(RequestError, match="cannot spell"):
            await grammars.prepare(ChoiceGrammar(("z",)))
    finally:
        await grammars.close()


@pytest.mark.parametrize(
    "wish", [RegexGrammar("^$"), ChoiceGrammar(("",)), EbnfGrammar('root ::= ("")*')]
)
async def test_a_grammar_of_the_empty_text_alone_is_refused(case: Case, wish: GrammarSpec) -> None:
    with pytest.raises(RequestError, match="nothing but an empty answer"):
        await case.grammars.prepare(wish)


async def test_numbers_that_do_not_travel_are_refused(case: Case) -> None:
    wish = JsonSchemaGrammar({"type": "integer", "maximum": 1 << 64}, "guided_json")
    with pytest.raises(RequestError, match=r"guided_json: .*64 bits"):
        await case.grammars.prepare(wish)


async def test_a_wish_that_is_too_large_is_refused_at_once(case: Case) -> None:
    with pytest.raises(RequestError, match="larger than"):
        await case.grammars.prepare(ChoiceGrammar(("a" * (1 << 20),)))
    assert case.vocabularies == []
