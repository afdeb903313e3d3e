"""`POST /v1/responses`: the request, and the chat request that it stands for."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from quire_engine.errors import RequestError
from quire_engine.server.schemas.chat import ChatMessage, ChatRequest, ContentPart
from quire_engine.server.schemas.parameters import (
    Penalty,
    PositiveCount,
    Seed,
    StopText,
    StopTexts,
    TopK,
)
from quire_engine.server.schemas.templates import ReasoningEffort, TemplateKwargs

_TEXT_PARTS = ("input_text", "output_text", "reasoning_text", "summary_text")


class InputPart(msgspec.Struct, kw_only=True):
    """A part of an item's content."""

    type: str
    """input_text, output_text, or reasoning_text and summary_text of a reasoning."""
    text: str | None = None


class InputItem(msgspec.Struct, kw_only=True):
    """A message, or a reasoning that an earlier response had before its message."""

    type: str | None = "message"
    """message or reasoning; others are not supported."""
    role: Literal["user", "assistant", "system", "developer"] | None = None
    """Who says it; only of a message, which has one."""
    content: str | list[InputPart] | None = None
    summary: list[InputPart] | None = None
    """Of a reasoning without content."""


class TextFormat(msgspec.Struct, kw_only=True):
    """The form of the text."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    """Only "text" is supported."""


class TextOptions(msgspec.Struct, kw_only=True):
    """How the text is to be."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    """Only medium, which changes nothing."""


class ReasoningOptions(msgspec.Struct, kw_only=True):
    """How the model is to reason."""

    effort: ReasoningEffort | None = None
    """As `reasoning_effort` of chat completions."""
    summary: Literal["auto", "concise", "detailed"] | None = None
    """Accepted; a reasoning is given whole."""


class ResponsesRequest(msgspec.Struct, kw_only=True):
    """A text or a conversation to answer. Nothing of it is stored."""

    model: str
    """A name that `GET /v1/models` lists."""
    input: str | Annotated[list[InputItem], Meta(min_length=1, max_length=4096)]
    """What the user says, or the whole conversation."""
    instructions: str | None = None
    """What the system says before."""
    max_output_tokens: PositiveCount | None = None
    """Most tokens to generate, the reasoning's included."""
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    stream: bool | None = False
    """Send the response in server-sent events while it is generated."""
    store: bool | None = None
    """Accepted; nothing is stored, as `store` of the response says."""
    metadata: Annotated[dict[str, str], Meta(max_length=16)] | None = None
    """Comes back in the response."""
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    user: str | None = None
    """Accepted and not used."""
    parallel_tool_calls: bool | None = True
    """Accepted: there are no tools."""
    truncation: Literal["auto", "disabled"] | None = "disabled"
    """Only disabled: what is too long is refused."""
    tools: list[dict[str, Any]] | None = None
    """Not supported."""
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = "auto"
    """Only "none" and "auto" are supported, for there are no tools."""
    include: list[str] | None = None
    """Not supported."""
    previous_response_id: str | None = None
    """Not supported: send the whole conversation."""
    conversation: str | dict[str, Any] | None = None
    """Not supported: send the whole conversation."""
    background: bool | None = False
    """Not supported."""
    prompt: dict[str, Any] | None = None
    """Not supported."""
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    """Not supported but 0."""

    stop: StopText | StopTexts | None = None
    """Generation ends before any of these texts."""
    seed: Seed | None = None
    top_k: TopK | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Penalty | None = 0
    frequency_penalty: Penalty | None = 0
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100)] | None = None
    ignore_eos: bool | None = False
    priority: Annotated[int, Meta(ge=-(2**53), le=2**53)] | None = 0
    chat_template_kwargs: TemplateKwargs | None = None
    """These ten as in chat completions."""

    def to_chat(self) -> ChatRequest:
        """The chat request that it stands for.

        Raises
        ------
        RequestError
            It wants what is not supported, or an item is not as it should be.
        """
        self._refuse_unsupported()
        return ChatRequest(
            model=self.model,
            messages=self._messages(),
            max_completion_tokens=self.max_output_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            stream=self.stream,
            stop=self.stop,
            seed=self.seed,
            top_k=self.top_k,
            min_p=self.min_p,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            ignore_eos=self.ignore_eos,
            priority=self.priority,
            chat_template_kwargs=self.chat_template_kwargs,
            reasoning_effort=self.reasoning.effort if self.reasoning else None,
        )

    def _refuse_unsupported(self) -> None:
        stateless = "nothing is stored here; send the whole conversation as input"
        form = self.text.format.type if self.text and self.text.format else "text"
        verbosity = self.text.verbosity if self.text else None
        for name, is_wanted, reason in (
            ("previous_response_id", self.previous_response_id is not None, stateless),
            ("conversation", self.conversation is not None, stateless),
            ("background", self.background, "not supported; wait for the response, or stream it"),
            ("prompt", self.prompt is not None, "not supported; send the prompt's text as input"),
            ("tools", self.tools, "not supported; leave them out"),
            ("tool_choice", self.tool_choice not in (None, "none", "auto"), "there are no tools"),
            ("include", self.include, "not supported; leave it out"),
            ("truncation", self.truncation == "auto", 'only "disabled"; send less input'),
            ("text.format", form != "text", 'only {"type": "text"} is supported'),
            ("text.verbosity", verbosity not in (None, "medium"), "not supported; leave it out"),
            ("top_logprobs", self.top_logprobs, "not supported; leave it out"),
        ):
            if is_wanted:
                raise RequestError(f"{name}: {reason}", parameter=name)

    def _messages(self) -> list[ChatMessage]:
        messages = []
        if self.instructions is not None:
            messages.append(ChatMessage(role="system", content=self.instructions))
        if isinstance(self.input, str):
            return [*messages, ChatMessage(role="user", content=self.input)]
        thought: str | None = None
        for index, item in enumerate(self.input):
            place = f"input[{index}]"
            if item.type == "reasoning":
                thought = "".join(_texts(item.content or item.summary or [], place))
                continue
            message = _to_message(item, place)
            if thought is not None:
                _attach(thought, message, messages)
                thought = None
            messages.append(message)
        if thought is not None:
            messages.append(ChatMessage(role="assistant", content="", reasoning_content=thought))
        return messages


def _attach(thought: str, message: ChatMessage, before: list[ChatMessage]) -> None:
    """Give a reasoning to the assistant's message after it, or to one without content."""
    if message.role == "assistant":
        message.reasoning_content = thought
    else:
        before.append(ChatMessage(role="assistant", content="", reasoning_content=thought))


def _to_message(item: InputItem, place: str) -> ChatMessage:
    if item.type not in (None, "message"):
        raise RequestError(
            f"{place}.type: items of type {item.type[:40]!r} are not supported; send messages",
            parameter=f"{place}.type",
        )
    if item.role is None or item.content is None:
        name = "role" if item.role is None else "content"
        raise RequestError(f"{place}.{name}: required", parameter=f"{place}.{name}")
    if isinstance(item.content, str):
        return ChatMessage(role=item.role, content=item.content)
    parts = [ContentPart(type="text", text=text) for text in _texts(item.content, place)]
    return ChatMessage(role=item.role, content=parts)


def _texts(content: str | list[InputPart], place: str) -> list[str]:
    if isinstance(content, str):
        return [content]
    texts = []
    for index, part in enumerate(content):
        if part.type not in _TEXT_PARTS or part.text is None:
            raise RequestError(
                f"{place}.content[{index}]: parts of type {part.type[:40]!r} are not supported, or"
                " have no text; send input_text",
                parameter=f"{place}.content[{index}]",
            )
        texts.append(part.text)
    return texts
