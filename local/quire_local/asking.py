"""Asks a running server one question and gives its answer piece by piece."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import httpx

from quire_engine.errors import QuireError


class AnswerError(QuireError):
    """The server refused the question, or ended it with an error."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One prompt and how it is to be answered."""

    text: str
    max_tokens: int
    temperature: float
    """0 always takes the most likely token, so that the same question has the same answer."""
    choices: Mapping[str, object] = field(default_factory=dict)
    """What else the request says, by the API's names; the rest is the model's choice."""
    is_raw: bool
    """Continue the text as it is, without the model's chat template around it."""


def served_model(url: str, api_key: str | None = None) -> str:
    """Name of the model that the server at `url` has.

    Raises
    ------
    AnswerError
        The server wants another key.
    """
    response = httpx.get(f"{url}/v1/models", timeout=10.0, headers=_headers(api_key))
    if response.is_error:
        raise AnswerError(response.json()["error"]["message"])
    name: str = response.json()["data"][0]["id"]
    return name


def stream_answer(url: str, question: Question, api_key: str | None = None) -> Iterator[str]:
    """Ask the server at `url`; the answer's text comes as it is generated.

    Raises
    ------
    AnswerError
        The question was refused, or the answer ended with an error.
    """
    path, body = _request(question)
    with httpx.Client(base_url=url, timeout=httpx.Timeout(10.0, read=None)) as client:
        try:
            body["model"] = served_model(url, api_key)
            with client.stream("POST", path, json=body, headers=_headers(api_key)) as response:
                if response.is_error:
                    response.read()
                    raise AnswerError(_refusal(response, question))
                yield from _pieces(response)
        except httpx.TransportError as error:
            raise AnswerError(f"the server broke off: {error}") from error


def _headers(api_key: str | None) -> dict[str, str]:
    return {} if api_key is None else {"authorization": f"Bearer {api_key}"}


def _request(question: Question) -> tuple[str, dict[str, object]]:
    body: dict[str, object] = {
        "stream": True,
        "max_tokens": question.max_tokens,
        "temperature": question.temperature,
        **question.choices,
    }
    if question.is_raw:
        return "/v1/completions", {**body, "prompt": question.text}
    messages = [{"role": "user", "content": question.text}]
    return "/v1/chat/completions", {**body, "messages": messages}


def _refusal(response: httpx.Response, question: Question) -> str:
    message: str = response.json()["error"]["message"]
    if question.is_raw or "template" not in message:
        return message
    return f"{message} (--raw sends the text without a chat template)"


def _pieces(response: httpx.Response) -> Iterator[str]:
    """Texts of a stream of server-sent events, of chat chunks or completion chunks."""
    for line in response.iter_lines():
        data = line.removeprefix("data:").strip()
        if not line.startswith("data:") or data == "[DONE]":
            continue
        event = json.loads(data)
        if "error" in event:
            raise AnswerError(event["error"]["message"])
        for choice in event["choices"]:
            yield choice.get("text") or choice.get("delta", {}).get("content") or ""
