"""What a request wants of the chat template: checked, and in the terms of the renderer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from quire_engine.errors import RequestError
from quire_engine.server.schemas.chat import ChatMessage, ChatRequest
from quire_engine.server.schemas.templates import TemplateKwargs
from quire_engine.server.schemas.tokens import TokenizeRequest

MAX_KWARGS_BYTES = 64 << 10
"""Of `chat_template_kwargs` as JSON: switches and small tables, not prompts."""
RESERVED = frozenset({
    "messages", "tools", "documents", "add_generation_prompt", "continue_final_message",
    "chat_template", "tokenize", "bos_token", "eos_token", "unk_token", "pad_token", "sep_token",
    "cls_token", "mask_token", "additional_special_tokens", "raise_exception", "strftime_now",
    "range", "dict", "lipsum", "cycler", "joiner", "namespace",
})  # fmt: skip
"""Names that a template has anyway: with another value it would not do what it was made for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateChoices:
    """How a conversation is to be written."""

    add_generation_prompt: bool = True
    continues_last: bool = False
    variables: Mapping[str, Any] = field(default_factory=dict)
    template: str | None = None
    """Another template than the model's."""


def choose_template(
    request: ChatRequest | TokenizeRequest, *, trusts_templates: bool
) -> TemplateChoices:
    """Return how the request's conversation is to be written.

    Parameters
    ----------
    trusts_templates
        Whether clients may bring templates of their own.

    Raises
    ------
    RequestError
        It brings a template and may not, has variables that it may not have, or wants the
        conversation to end in two ways.
    """
    if request.chat_template is not None and not trusts_templates:
        raise RequestError(
            "chat_template: this server takes no templates from clients; it would have to be"
            " started with --trust-request-chat-template",
            parameter="chat_template",
        )
    continues = bool(request.continue_final_message)
    begins = request.add_generation_prompt is not False
    if continues and begins:
        raise RequestError(
            "continue_final_message: not together with add_generation_prompt; add"
            ' "add_generation_prompt": false',
            parameter="continue_final_message",
        )
    variables = dict(_check_kwargs(request.chat_template_kwargs or {}))
    if isinstance(request, ChatRequest):
        variables = _other_variables(request) | variables
    return TemplateChoices(
        add_generation_prompt=begins,
        continues_last=continues,
        variables=variables,
        template=request.chat_template,
    )


def _other_variables(request: ChatRequest) -> dict[str, Any]:
    """Return what other parameters mean for a template: to many, an effort is a switch."""
    variables: dict[str, Any] = {}
    if request.documents is not None:
        variables["documents"] = request.documents
    if request.reasoning_effort is not None:
        variables["reasoning_effort"] = request.reasoning_effort
        variables["enable_thinking"] = request.reasoning_effort != "none"
    return variables


def _check_kwargs(kwargs: TemplateKwargs) -> TemplateKwargs:
    reserved = sorted(RESERVED & kwargs.keys())
    if reserved:
        raise _refuse(f"{reserved[0]!r} is not for clients to set here")
    try:
        # the process that renders is sent msgpack, which has no larger numbers than 64 bits
        msgspec.msgpack.encode(kwargs)
        size = len(msgspec.json.encode(kwargs))
    except OverflowError:
        raise _refuse("a number is too large") from None
    except RecursionError:
        raise _refuse("nested too deeply") from None
    if size > MAX_KWARGS_BYTES:
        raise _refuse(f"{size} bytes are more than {MAX_KWARGS_BYTES}; send less")
    return kwargs


def _refuse(reason: str) -> RequestError:
    return RequestError(f"chat_template_kwargs: {reason}", parameter="chat_template_kwargs")


def last_text(messages: Sequence[ChatMessage]) -> str:
    """Return the content of the last message, which a model is to go on with."""
    content = messages[-1].content or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content)
