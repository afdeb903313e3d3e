"""`POST /v1/responses`: the response, its items and the events of a stream."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from quire_engine.server.schemas.responses import ResponseTool, ResponseToolChoice, TextFormat
from quire_engine.server.schemas.usage import Usage

ItemStatus = Literal["in_progress", "completed", "incomplete"]
ResponseStatus = Literal["in_progress", "completed", "incomplete", "failed"]
EventType = Literal[
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.reasoning_text.delta",
    "response.reasoning_text.done",
    "response.output_text.delta",
    "response.output_text.done",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
    "response.incomplete",
    "response.failed",
]


class OutputText(msgspec.Struct, kw_only=True, tag_field="type", tag="output_text"):
    """The text of a message."""

    text: str
    annotations: Annotated[list[Any], Meta(max_length=0)] = []
    logprobs: Annotated[list[Any], Meta(max_length=0)] = []


class ReasoningText(msgspec.Struct, kw_only=True, tag_field="type", tag="reasoning_text"):
    """The text of a reasoning."""

    text: str


class OutputMessage(msgspec.Struct, kw_only=True, tag_field="type", tag="message"):
    """What the model says."""

    id: str
    role: Literal["assistant"] = "assistant"
    status: ItemStatus
    content: list[OutputText]


class ReasoningItem(msgspec.Struct, kw_only=True, tag_field="type", tag="reasoning"):
    """What the model thought before."""

    id: str
    status: ItemStatus
    summary: Annotated[list[Any], Meta(max_length=0)] = []
    content: list[ReasoningText]


class FunctionCallItem(msgspec.Struct, kw_only=True, tag_field="type", tag="function_call"):
    """A call of a function."""

    id: str
    status: ItemStatus
    call_id: str
    """What the function's result is sent back with."""
    name: str
    arguments: str
    """JSON, as the model wrote it: it need not be valid."""


OutputItem = ReasoningItem | OutputMessage | FunctionCallItem


class InputTokensDetails(msgspec.Struct, kw_only=True):
    """More about the input's tokens."""

    cached_tokens: int


class OutputTokensDetails(msgspec.Struct, kw_only=True):
    """More about the output's tokens."""

    reasoning_tokens: int


class ResponseUsage(msgspec.Struct, kw_only=True):
    """Token counts, as they were computed."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class IncompleteDetails(msgspec.Struct, kw_only=True):
    """Why a response is not complete."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"


class ResponseFailure(msgspec.Struct, kw_only=True):
    """Why a response failed in mid-stream."""

    code: Literal["server_error", "rate_limit_exceeded"]
    message: str


class ResponseText(msgspec.Struct, kw_only=True):
    """The form of the text."""

    format: TextFormat


class ResponseReasoning(msgspec.Struct, kw_only=True):
    """How the model was to reason."""

    effort: str | None
    summary: None = None


class ResponseObject(msgspec.Struct, kw_only=True):
    """A response, as far as it has come."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: ResponseStatus
    error: ResponseFailure | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None
    max_output_tokens: int | None
    model: str
    output: list[OutputItem]
    parallel_tool_calls: bool
    previous_response_id: None = None
    reasoning: ResponseReasoning
    background: Literal[False] = False
    store: Literal[False] = False
    """Nothing is."""
    temperature: float | None
    text: ResponseText
    tool_choice: ResponseToolChoice
    tools: list[ResponseTool]
    top_p: float | None
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None = None
    """null before the end."""
    user: str | None
    metadata: dict[str, str]


class ResponseStreamEvent(msgspec.Struct, kw_only=True):
    """One event of a stream, with the fields of its type."""

    type: EventType
    sequence_number: int
    response: ResponseObject | UnsetType = UNSET
    item_id: str | UnsetType = UNSET
    output_index: int | UnsetType = UNSET
    content_index: int | UnsetType = UNSET
    item: OutputItem | UnsetType = UNSET
    part: ReasoningText | OutputText | UnsetType = UNSET
    delta: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    logprobs: Annotated[list[Any], Meta(max_length=0)] | UnsetType = UNSET


def to_response_usage(usage: Usage) -> ResponseUsage:
    """Return token counts as responses name them."""
    details = usage.completion_tokens_details
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputTokensDetails(
            cached_tokens=usage.prompt_tokens_details.cached_tokens
        ),
        output_tokens=usage.completion_tokens,
        output_tokens_details=OutputTokensDetails(
            reasoning_tokens=0 if isinstance(details, UnsetType) else details.reasoning_tokens
        ),
        total_tokens=usage.total_tokens,
    )
