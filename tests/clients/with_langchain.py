"""langchain-openai, as its manual uses it: chat, text, streams, usage, stop, n, batches, scores."""

import asyncio
from typing import Any

from langchain_core.messages import (  # type: ignore[import-not-found]
    AIMessage,
    HumanMessage,
    SystemMessage,
)
from langchain_core.output_parsers import StrOutputParser  # type: ignore[import-not-found]
from langchain_core.prompts import ChatPromptTemplate  # type: ignore[import-not-found]
from langchain_openai import ChatOpenAI, OpenAI  # type: ignore[import-not-found]

from tests.clients.checking import QUESTION, main, require

ENDS = ("stop", "length")


def _chat(url: str, model: str, **choices: Any) -> ChatOpenAI:
    defaults: dict[str, Any] = {"temperature": 0, "max_tokens": 24, "max_retries": 0}
    return ChatOpenAI(model=model, base_url=url, api_key="none", **(defaults | choices))


def a_chat_is_answered_with_its_usage(url: str, model: str) -> None:
    """Also the finish reason and the model's name."""
    messages = [SystemMessage("You are terse."), HumanMessage(QUESTION)]
    answer = _chat(url, model).invoke(messages)

    require("Paris" in str(answer.content), answer)
    usage = answer.usage_metadata
    require(usage is not None and usage["total_tokens"] > usage["input_tokens"] > 0, usage)
    require(answer.response_metadata["finish_reason"] in ENDS, answer.response_metadata)
    require(answer.response_metadata["model_name"] == model, answer.response_metadata)


def a_conversation_goes_on(url: str, model: str) -> None:
    """Its own answer comes back as an assistant's message."""
    messages = [HumanMessage(QUESTION), AIMessage("Paris."), HumanMessage("Say it again.")]
    require(bool(_chat(url, model).invoke(messages).content), messages)


def a_stream_is_the_whole_answer_with_its_usage(url: str, model: str) -> None:
    """Pieces added up are what `invoke` gives."""
    chat = _chat(url, model, stream_usage=True)
    whole = chat.invoke(QUESTION)
    pieces = list(chat.stream(QUESTION))
    total = pieces[0]
    for piece in pieces[1:]:
        total += piece

    require(total.content == whole.content, (total, whole))
    require(total.usage_metadata is not None, total)
    counts = [(one.usage_metadata or {}).get("total_tokens") for one in (total, whole)]
    require(counts[0] == counts[1], counts)


def asynchronous_streams_run_side_by_side(url: str, model: str) -> None:
    """Eight at a time."""

    async def read() -> str:
        return "".join([str(piece.content) async for piece in _chat(url, model).astream(QUESTION)])

    async def read_all() -> list[str]:
        return await asyncio.gather(*(read() for _ in range(8)))

    answers = asyncio.run(read_all())
    require(len(set(answers)) == 1 and "Paris" in answers[0], answers)


def a_stop_text_ends_the_answer(url: str, model: str) -> None:
    """Given at the call, as LangChain has it."""
    answer = _chat(url, model).invoke("Count: one, two, three", stop=["three", "3"])
    require("three" not in str(answer.content), answer)


def several_answers_come_together(url: str, model: str) -> None:
    """The parameter n."""
    chat = _chat(url, model, n=3, temperature=1.0, seed=7)
    [answers] = chat.generate([[HumanMessage("Name a river.")]]).generations
    require(len(answers) == 3 and len({one.text for one in answers}) > 1, answers)


def scores_of_tokens_come_along(url: str, model: str) -> None:
    """Log probabilities with likely alternatives."""
    chat = _chat(url, model).bind(logprobs=True, top_logprobs=2)
    scores = chat.invoke(QUESTION).response_metadata["logprobs"]["content"]
    require(bool(scores) and all(len(one["top_logprobs"]) == 2 for one in scores), scores)


def a_chain_of_prompt_model_and_parser_works(url: str, model: str) -> None:
    """In a batch."""
    prompt = ChatPromptTemplate.from_messages([("human", "What is the capital of {country}?")])
    chain = prompt | _chat(url, model) | StrOutputParser()
    answers = chain.batch([{"country": "France"}, {"country": "Italy"}])
    require("Paris" in answers[0] and len(set(answers)) == 2, answers)


def texts_are_completed(url: str, model: str) -> None:
    """The older API, streamed and in one request of several prompts."""
    llm = OpenAI(
        model=model, base_url=url, api_key="none", temperature=0, max_tokens=8, max_retries=0
    )
    prompts = ["The capital of France is", "One, two, three,"]
    found = llm.generate(prompts)
    require(len(found.generations) == 2, found)
    require((found.llm_output or {})["token_usage"]["completion_tokens"] > 0, found.llm_output)
    whole = found.generations[0][0].text
    require("".join(llm.stream(prompts[0])) == whole, whole)


if __name__ == "__main__":
    main(
        [
            a_chat_is_answered_with_its_usage,
            a_conversation_goes_on,
            a_stream_is_the_whole_answer_with_its_usage,
            asynchronous_streams_run_side_by_side,
            a_stop_text_ends_the_answer,
            several_answers_come_together,
            scores_of_tokens_come_along,
            a_chain_of_prompt_model_and_parser_works,
            texts_are_completed,
        ]
    )
