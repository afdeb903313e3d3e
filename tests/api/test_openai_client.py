"""The OpenAI client, streaming and not, sees what it sees at OpenAI's."""

from typing import Any

import openai
import pytest

from tests.api.gateways import BOTH_WAYS
from tests.api.servers import MODEL

QUESTION: Any = [{"role": "user", "content": "Where is the lighthouse?"}]


def chat(client: openai.OpenAI, **parameters: Any) -> Any:
    return client.chat.completions.create(model=MODEL, messages=QUESTION, **parameters)


def complete(client: openai.OpenAI, **parameters: Any) -> Any:
    return client.completions.create(model=MODEL, **parameters)


@BOTH_WAYS
def test_a_chat_completion_has_text_reason_and_counts(client: openai.OpenAI) -> None:
    answer = chat(client, max_tokens=24)

    (choice,) = answer.choices
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.model == MODEL
    assert choice.message.role == "assistant"
    assert len(choice.message.content) == 24  # a simulated token is a letter
    assert choice.finish_reason == "length"
    assert answer.usage.completion_tokens == 24
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 24


@BOTH_WAYS
def test_a_chat_stream_has_role_then_text_then_reason_then_usage(client: openai.OpenAI) -> None:
    whole = chat(client, max_tokens=24, seed=7)
    chunks = list(
        chat(
            client,
            max_tokens=24,
            seed=7,
            stream=True,
            stream_options={"include_usage": True},
        )
    )

    first, *texts, finish, usage = chunks
    assert (first.choices[0].delta.role, first.choices[0].delta.content) == ("assistant", "")
    assert all(chunk.choices[0].delta.content for chunk in texts)
    assert all(chunk.choices[0].delta.role is None for chunk in texts)
    assert all(chunk.choices[0].finish_reason is None for chunk in (first, *texts))
    assert finish.choices[0].finish_reason == "length"
    assert finish.choices[0].delta.content is None
    assert usage.choices == []
    assert usage.usage.completion_tokens == 24
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert {(chunk.id, chunk.created, chunk.model) for chunk in chunks} == {
        (first.id, first.created, MODEL)
    }
    text = "".join(chunk.choices[0].delta.content for chunk in texts)
    assert text == whole.choices[0].message.content


@BOTH_WAYS
def test_a_stream_without_usage_ends_with_the_reason(client: openai.OpenAI) -> None:
    *_, last = chat(client, max_completion_tokens=5, stream=True)

    assert last.choices[0].finish_reason == "length"
    assert last.usage is None


@BOTH_WAYS
def test_text_completions_agree_streamed_and_whole(client: openai.OpenAI) -> None:
    wanted: dict[str, Any] = {"prompt": "The keeper", "max_tokens": 20, "temperature": 0}
    whole = complete(client, **wanted)
    *texts, last = complete(client, **wanted, stream=True)

    assert whole.object == "text_completion"
    assert whole.choices[0].finish_reason == last.choices[0].finish_reason == "length"
    assert all(chunk.choices[0].finish_reason is None for chunk in texts)
    streamed = "".join(chunk.choices[0].text for chunk in (*texts, last))
    assert streamed == whole.choices[0].text
    assert len(streamed) == 20


@BOTH_WAYS
def test_a_text_completion_has_16_tokens_if_none_are_asked_for(client: openai.OpenAI) -> None:
    answer = complete(client, prompt="The keeper")

    assert answer.usage.completion_tokens == 16


@pytest.mark.parametrize("as_list", [False, True], ids=["ids", "list of ids"])
@BOTH_WAYS
def test_token_ids_are_taken_as_they_are(client: openai.OpenAI, as_list: bool) -> None:
    text = complete(client, prompt="abc", max_tokens=8)
    ids = list(b"abc")
    answer = complete(client, prompt=[ids] if as_list else ids, max_tokens=8)

    assert answer.choices[0].text == text.choices[0].text
    assert answer.usage.prompt_tokens == 3


@BOTH_WAYS
def test_a_stop_string_cuts_the_text_alike_streamed_and_whole(client: openai.OpenAI) -> None:
    wanted: dict[str, Any] = {"prompt": "The sea", "max_tokens": 64}
    full = complete(client, **wanted).choices[0].text
    stop = full[21:25]
    expected = full[: full.index(stop)]

    whole = complete(client, **wanted, stop=["unheard-of", stop])
    chunks = list(
        complete(client, **wanted, stop=stop, stream=True, stream_options={"include_usage": True})
    )

    assert whole.choices[0].text == expected
    assert "".join(chunk.choices[0].text for chunk in chunks[:-1]) == expected
    assert whole.choices[0].finish_reason == chunks[-2].choices[0].finish_reason == "stop"
    num_tokens = len(expected) + len(stop)
    assert whole.usage.completion_tokens == chunks[-1].usage.completion_tokens == num_tokens


def test_a_repeated_prompt_is_found_in_the_cache(client: openai.OpenAI) -> None:
    prompt = "A long enough beginning to fill some blocks of the cache, said twice. " * 3
    first = complete(client, prompt=prompt, max_tokens=2)
    again = complete(client, prompt=prompt, max_tokens=2)

    assert first.usage.prompt_tokens_details.cached_tokens == 0
    assert again.usage.prompt_tokens_details.cached_tokens == len(prompt) // 16 * 16
    assert again.choices[0].text == first.choices[0].text


@BOTH_WAYS
def test_a_long_prompt_is_tokenized_beside_the_loop(client: openai.OpenAI) -> None:
    answer = complete(client, prompt="x" * 8000, max_tokens=4)

    assert answer.usage.prompt_tokens == 8000


@BOTH_WAYS
def test_output_is_clamped_to_the_room_that_the_prompt_leaves(client: openai.OpenAI) -> None:
    answer = complete(client, prompt="y" * 8150, max_tokens=100)

    assert answer.usage.completion_tokens == 8192 - 8150
    assert answer.choices[0].finish_reason == "length"


@BOTH_WAYS
def test_the_model_is_listed_and_described(client: openai.OpenAI) -> None:
    (listed,) = client.models.list()
    described = client.models.retrieve(MODEL)

    assert listed == described
    assert described.id == MODEL
    assert described.model_dump()["max_model_len"] == 8192
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")
