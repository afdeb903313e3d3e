"""`POST /v1/chat/completions`: request, response and chunk."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from quire_engine.errors import RequestError
from quire_engine.server.schemas.logprobs import ChatLogprobs, PromptLogprobs, StopReason
from quire_engine.server.schemas.parameters import (
    MAX_LOGPROBS,
    GenerationParameters,
    PositiveCount,
)
from quire_engine.server.schemas.templates import (
    Documents,
    ReasoningEffort,
    Template,
    TemplateKwargs,
)
from quire_engine.server.schemas.tools import (
    MAX_TOOLS,
    CallId,
    FunctionReference,
    Tool,
    ToolCall,
    ToolCallDelta,
    ToolChoice,
)
from quire_engine.server.schemas.usage import ChatEndReason, Usage


class ContentPart(msgspec.Struct, kw_only=True):
    """A part of a message's content."""

    type: Literal["text"]
    """Only text is supported."""
    text: str


class ChatMessage(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    """A text, or text parts; may be null for the assistant only."""
    name: str | None = None
    """Who speaks, for templates that show it; of a tool's result, the function's name."""
    tool_calls: Annotated[list[ToolCall], Meta(max_length=MAX_TOOLS)] | None = None
    """Tools that the assistant called."""
    tool_call_id: CallId | None = None
    """Of a tool's result: which call it answers."""
    reasoning_content: str | None = None
    """What the assistant thought before it said this, for templates that show it."""
    reasoning: str | None = None
    """The same, by its newer name."""

    @property
    def num_characters(self) -> int:
        """Length of the content, of all its parts, of the reasoning and of calls' arguments."""
        num_others = len(self.reasoning_content or self.reasoning or "")
        num_others += sum(len(call.function.arguments) for call in self.tool_calls or ())
        if isinstance(self.content, list):
            return num_others + sum(len(part.text) for part in self.content)
        return num_others + len(self.content or "")

    def to_template(self) -> dict[str, Any]:
        """The message as templates read it: a reasoning has both names there."""
        message: dict[str, Any] = msgspec.to_builtins(self)
        if thought := self.reasoning_content or self.reasoning:
            message["reasoning_content"] = message["reasoning"] = thought
        return message


class ChatRequest(GenerationParameters, kw_only=True):
    """A conversation to continue."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=4096)]
    max_completion_tokens: PositiveCount | None = None
    """Most tokens to generate; wins over max_tokens, its older name."""
    logprobs: bool | None = False
    """Score each token of the answer."""
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)] | None = None
    """With `logprobs`: the most likely tokens in each one's place, too."""
    tools: Annotated[list[Tool], Meta(max_length=MAX_TOOLS)] | None = None
    """Functions that the model may call."""
    tool_choice: ToolChoice | None = None
    """auto, which is the default: the model decides; none: it is not told of the tools; required:
    it calls at least one; or the one, or some, that it may call."""
    parallel_tool_calls: bool | None = True
    """Whether an answer may have several calls."""
    functions: list[dict[str, Any]] | None = None
    """Replaced by `tools`; not supported."""
    function_call: Literal["none", "auto"] | FunctionReference | None = None
    """Replaced by `tool_choice`; not supported."""

    add_generation_prompt: bool | None = True
    """End the conversation with the beginning of the answer."""
    continue_final_message: bool | None = False
    """Go on with the last message; only together with `add_generation_prompt` false."""
    chat_template: Template | None = None
    """A Jinja template in place of the model's; only with --trust-request-chat-template."""
    chat_template_kwargs: TemplateKwargs | None = None
    """Variables for the model's chat template, such as {"enable_thinking": false}; up to 64 KiB."""
    documents: Documents | None = None
    """Texts for templates that take some, such as {"title": ..., "text": ...}."""
    reasoning_effort: ReasoningEffort | None = None
    """A variable of the same name for the template, and `enable_thinking`: not for none."""
    include_reasoning: bool | None = True
    """Whether the reasoning is sent, where it is told from the answer."""

    def wanted_tokens(self) -> int | None:
        """How many tokens the client wants at most."""
        return self.max_completion_tokens or self.max_tokens

    def num_logprobs(self) -> int | None:
        """How many likely tokens are wanted beside each token's score."""
        return self.top_logprobs or 0 if self.logprobs else None

    def check(self) -> None:
        """Refuse what decoding cannot see; see `GenerationParameters.check`."""
        super().check()
        for old, new in (("functions", "tools"), ("function_call", "tool_choice")):
            if getattr(self, old) not in (None, [], "none", "auto"):
                raise RequestError(f"{old}: not supported; send {new} instead", parameter=old)
        if self.top_logprobs and not self.logprobs:
            raise RequestError(
                'top_logprobs: only allowed together with "logprobs": true',
                parameter="top_logprobs",
            )
        for index, message in enumerate(self.messages):
            if message.content is None and message.role != "assistant":
                raise RequestError(
                    f"messages[{index}].content: required for the role {message.role}",
                    parameter=f"messages[{index}].content",
                )


class AnswerMessage(msgspec.Struct, kw_only=True):
    """What the model says."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    """null where the model has only reasoned, or called tools."""
    refusal: None = None
    reasoning_content: str | msgspec.UnsetType | None = msgspec.UNSET
    """What the model thought before; only where its reasoning is told from its answers."""
    reasoning: str | msgspec.UnsetType | None = msgspec.UNSET
    """The same, by its newer name."""
    tool_calls: list[ToolCall] | msgspec.UnsetType = msgspec.UNSET
    """Only if there are any."""


class ChatChoice(msgspec.Struct, kw_only=True):
    """One answer."""

    index: int = 0
    message: AnswerMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: ChatEndReason
    stop_reason: StopReason = None


class ChatResponse(msgspec.Struct, kw_only=True):
    """A whole answer."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_logprobs: PromptLogprobs | msgspec.UnsetType = msgspec.UNSET
    """Only if the request has `prompt_logprobs`."""


class ChatDelta(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a chunk adds to the answer."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    """Of the reasoning, which comes before the content."""
    reasoning: str | None = None
    """The same, by its newer name."""
    tool_calls: list[ToolCallDelta] | None = None
    """Of one call, by its index: first its name, then its arguments."""


class ChatChunkChoice(msgspec.Struct, kw_only=True):
    """What a chunk adds to one answer."""

    index: int = 0
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: ChatEndReason | None = None
    stop_reason: StopReason | msgspec.UnsetType = msgspec.UNSET
    """Only with the finish reason."""


class ChatChunk(msgspec.Struct, kw_only=True):
    """One event of a stream."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    """Only with `stream_options`: `include_usage` has it in the last chunk and null before,
    `continuous_usage_stats` in each."""
