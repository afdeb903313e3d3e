"""LiteLLM, as its manual uses it with servers of OpenAI's API, and with vLLM's."""

import asyncio
from typing import Any

import litellm  # type: ignore[import-not-found]

from tests.clients.checking import QUESTION, main, require

MESSAGES = [{"role": "user", "content": QUESTION}]


def _ask(url: str, model: str, provider: str = "openai", **choices: Any) -> Any:
    defaults: dict[str, Any] = {"messages": MESSAGES, "temperature": 0, "max_tokens": 24}
    return litellm.completion(
        model=f"{provider}/{model}",
        api_base=url,
        api_key="none",
        num_retries=0,
        **(defaults | choices),
    )


def a_chat_is_answered_with_its_usage(url: str, model: str) -> None:
    """By either provider's name."""
    for provider in ("openai", "hosted_vllm"):
        answer = _ask(url, model, provider)
        require("Paris" in answer.choices[0].message.content, answer)
        require(answer.choices[0].finish_reason in ("stop", "length"), answer)
        usage = answer.usage
        require(usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, usage)


def a_stream_is_the_whole_answer_with_its_usage(url: str, model: str) -> None:
    """Pieces added up are the whole answer."""
    whole = _ask(url, model)
    pieces = list(_ask(url, model, stream=True, stream_options={"include_usage": True}))
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
    require(text == whole.choices[0].message.content, (text, whole))
    rebuilt = litellm.stream_chunk_builder(pieces, messages=MESSAGES)
    require(rebuilt.usage.total_tokens == whole.usage.total_tokens, (rebuilt.usage, whole.usage))


def asynchronous_streams_run_side_by_side(url: str, model: str) -> None:
    """Eight at a time."""

    async def read() -> str:
        stream = await litellm.acompletion(
            model=f"openai/{model}",
            api_base=url,
            api_key="none",
            messages=MESSAGES,
            temperature=0,
            max_tokens=24,
            stream=True,
        )
        return "".join([piece.choices[0].delta.content or "" async for piece in stream])

    async def read_all() -> list[str]:
        return await asyncio.gather(*(read() for _ in range(8)))

    answers = asyncio.run(read_all())
    require(len(set(answers)) == 1 and "Paris" in answers[0], answers)


def several_answers_and_a_stop_text(url: str, model: str) -> None:
    """The parameters n, stop, seed and scores."""
    answer = _ask(url, model, n=3, temperature=1.0, seed=7, stop=["."], logprobs=True)
    texts = [choice.message.content for choice in answer.choices]
    require(len(texts) == 3 and not any("." in text for text in texts), texts)
    require(all(choice.logprobs.content for choice in answer.choices), answer)


def vllms_own_parameters_are_passed_on(url: str, model: str) -> None:
    """Those that OpenAI has not."""
    extra = {"top_k": 1, "repetition_penalty": 1.0, "min_p": 0.0, "ignore_eos": True}
    answer = _ask(url, model, "hosted_vllm", temperature=1.0, max_tokens=30, extra_body=extra)
    require(answer.usage.completion_tokens == 30, answer.usage)


def texts_are_completed(url: str, model: str) -> None:
    """The older API."""
    answer = litellm.text_completion(
        model=f"text-completion-openai/{model}",
        api_base=url,
        api_key="none",
        prompt="The capital of France is",
        temperature=0,
        max_tokens=8,
    )
    require("Paris" in answer.choices[0].text, answer)


def errors_are_those_of_openai(url: str, model: str) -> None:
    """LiteLLM tells them apart by status and body."""
    cases: tuple[tuple[str, dict[str, Any], type[Exception]], ...] = (
        ("no-such-model", {}, litellm.NotFoundError),
        (model, {"max_tokens": 10**6}, litellm.BadRequestError),
        (model, {"messages": [{"role": "user", "content": "x" * 10**5}]}, litellm.BadRequestError),
    )
    for name, choices, kind in cases:
        try:
            found: object = _ask(url, name, **choices)
        except Exception as error:  # noqa: BLE001 - its kind is what is asked
            found = error
        require(isinstance(found, kind), found)


if __name__ == "__main__":
    main(
        [
            a_chat_is_answered_with_its_usage,
            a_stream_is_the_whole_answer_with_its_usage,
            asynchronous_streams_run_side_by_side,
            several_answers_and_a_stop_text,
            vllms_own_parameters_are_passed_on,
            texts_are_completed,
            errors_are_those_of_openai,
        ]
    )
