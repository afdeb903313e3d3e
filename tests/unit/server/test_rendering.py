"""Chat templates that loop or explode end with an error, and only for who asked."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from quire_engine.errors import RequestError
from quire_engine.server import rendering
from quire_engine.server.rendering import STUCK_SECONDS, TemplateRenderer
from quire_engine.tokenizing.chat_template import ChatTemplate

ASKED = [{"role": "user", "content": "Hello"}]
BY_CONTENT = """{%- set text = messages[0].content -%}
{%- if text == "loop" -%}
    {%- for a in range(99999) -%}{%- for b in range(99999) -%}{%- endfor -%}{%- endfor -%}
{%- elif text == "recursion" -%}
    {%- macro twice(n) -%}
        {%- if n -%}{{ twice(n - 1) }}{{ twice(n - 1) }}{%- endif -%}
    {%- endmacro -%}
    {{- twice(90) -}}
{%- elif text == "depth" -%}
    {%- macro deeper(n) -%}{{ deeper(n + 1) }}{%- endmacro -%}
    {{- deeper(0) -}}
{%- elif text == "endless" -%}
    {%- for a in range(99999) -%}{%- for b in range(99999) -%}{{ text }}{%- endfor -%}{%- endfor -%}
{%- elif text == "huge" -%}
    {{- ("x" * 9999999999) | length -}}
{%- elif text == "doubling" -%}
    {%- set ns = namespace(text="x") -%}
    {%- for a in range(99) -%}{%- set ns.text = ns.text ~ ns.text -%}{%- endfor -%}
{%- elif text == "refused" -%}
    {{- raise_exception("say something nice") -}}
{%- else -%}
    {{- text -}}
{%- endif -%}"""

MakeRenderer = Callable[[str], TemplateRenderer]


@pytest.fixture
async def renderer() -> AsyncIterator[TemplateRenderer]:
    made = TemplateRenderer(ChatTemplate(BY_CONTENT), max_characters=10_000)
    yield made
    await made.close()


def says(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


async def test_a_conversation_is_rendered_as_in_this_process(renderer: TemplateRenderer) -> None:
    text = "Grüße, 世界\n" * 50
    assert await renderer.render(says(text)) == ChatTemplate(BY_CONTENT).render(says(text))


async def test_variables_reach_the_template() -> None:
    renderer = TemplateRenderer(ChatTemplate("{{ bos }}{{ mood }}", {"bos": "<s>"}), 100)
    assert await renderer.render(ASKED, variables={"mood": "calm"}) == "<s>calm"
    await renderer.close()


def test_nothing_is_computed_while_a_template_is_compiled() -> None:
    ChatTemplate('{{ "x" * 10 ** 15 }}{{ ("x" * 10 ** 15) | length }}{{ "x" | center(10 ** 15) }}')


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("loop", "takes too long"),
        ("recursion", "takes too long"),
        ("depth", "fails on these messages: RecursionError"),
        ("endless", "more than 10000 characters"),
        ("huge", "too much memory"),
        ("doubling", "too much memory|takes too long"),  # a starved machine is slow to give memory
        ("refused", "say something nice"),
    ],
)
async def test_a_template_that_does_harm_ends_with_an_error_and_the_next_is_well(
    renderer: TemplateRenderer, text: str, reason: str
) -> None:
    with pytest.raises(RequestError, match=reason) as caught:
        await renderer.render(says(text))
    assert caught.value.parameter == "messages"
    assert await renderer.render(says("fine")) == "fine"


async def test_others_are_rendered_while_one_loops(renderer: TemplateRenderer) -> None:
    looping = asyncio.create_task(renderer.render(says("loop")))
    await asyncio.sleep(STUCK_SECONDS)
    for number in range(20):
        assert await renderer.render(says(f"fine {number}")) == f"fine {number}"
    assert not looping.done()
    with pytest.raises(RequestError):
        await looping


async def test_who_stops_waiting_leaves_no_answer_to_the_next(renderer: TemplateRenderer) -> None:
    await renderer.start()
    leaving = asyncio.create_task(renderer.render(says("mine")))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)

    assert await renderer.render(says("yours")) == "yours"


async def test_many_at_once_get_their_own_texts(renderer: TemplateRenderer) -> None:
    texts = [f"conversation {number}" for number in range(300)]
    answers = await asyncio.gather(*(renderer.render(says(text)) for text in texts))
    assert answers == texts


async def test_those_behind_one_that_kills_the_process_are_rendered_by_the_next(
    renderer: TemplateRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.gather(*(renderer.render(says("both are warm")) for _ in range(2)))
    monkeypatch.setattr(rendering, "ANSWER_SECONDS", 1.5)  # less than the loop's CPU time
    looping = asyncio.create_task(renderer.render(says("loop")))
    others = [asyncio.create_task(renderer.render(says(f"fine {n}"))) for n in range(6)]

    with pytest.raises(RequestError, match="does not get done"):
        await looping
    monkeypatch.setattr(rendering, "ANSWER_SECONDS", 60.0)
    assert await asyncio.gather(*others) == [f"fine {n}" for n in range(6)]
