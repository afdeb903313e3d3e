"""instructor: answers as objects, of models that are asked for JSON in the prompt alone."""

import asyncio
from typing import Any, Literal

import instructor  # type: ignore[import-not-found]
import openai
from pydantic import BaseModel

from tests.clients.checking import main, require

MODE = instructor.Mode.MD_JSON
"""A JSON block in the answer: small models manage it when they are shown how."""


class Colour(BaseModel):  # a text here would come into the prompt
    name: Literal["blue", "green", "red"]


def _question(model: str) -> dict[str, Any]:
    shown = [("the sky", "blue"), ("blood", "red"), ("grass", None)]
    messages = []
    for thing, colour in shown:
        messages.append({"role": "user", "content": f"Which colour has {thing}?"})
        if colour is not None:
            answer = f'```json\n{{"name": "{colour}"}}\n```'
            messages.append({"role": "assistant", "content": answer})
    return {
        "model": model,
        "messages": messages,
        "response_model": Colour,
        "temperature": 0,
        "max_tokens": 64,
    }


def an_answer_is_an_object_and_has_its_usage(url: str, model: str) -> None:
    """What does not fit the object's type would be sent back with what is wrong in it."""
    client = instructor.from_openai(openai.OpenAI(base_url=url, api_key="none"), mode=MODE)
    answer, completion = client.chat.completions.create_with_completion(**_question(model))
    require(isinstance(answer, Colour) and answer.name == "green", answer)
    require(completion.usage.total_tokens > completion.usage.prompt_tokens > 0, completion)


def asynchronous_clients_ask_side_by_side(url: str, model: str) -> None:
    """Four at a time."""

    async def ask_all() -> list[Colour]:
        client = instructor.from_openai(openai.AsyncOpenAI(base_url=url, api_key="none"), mode=MODE)
        asked = (client.chat.completions.create(**_question(model)) for _ in range(4))
        return list(await asyncio.gather(*asked))

    answers = asyncio.run(ask_all())
    require([answer.name for answer in answers] == ["green"] * 4, answers)


if __name__ == "__main__":
    main(
        [
            an_answer_is_an_object_and_has_its_usage,
            asynchronous_clients_ask_side_by_side,
        ]
    )
