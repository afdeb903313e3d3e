"""`POST /tokenize` and `POST /detokenize`, in vLLM's shapes."""

from typing import Annotated

import msgspec
from msgspec import Meta

from quire_engine.errors import RequestError
from quire_engine.server.schemas.chat import ChatMessage
from quire_engine.server.schemas.parameters import TokenId
from quire_engine.server.schemas.templates import Template, TemplateKwargs
from quire_engine.server.schemas.tools import MAX_TOOLS, Tool


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """A text, or a conversation, to be cut into tokens; just one of the two."""

    model: str | None = None
    """A name that `GET /v1/models` lists; null takes what is served."""
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=4096)] | None = None
    tools: Annotated[list[Tool], Meta(max_length=MAX_TOOLS)] | None = None
    """Of a conversation: functions that the model may call."""
    add_special_tokens: bool | None = None
    """Add tokens that the model puts around every text; by default, around a prompt only, for a
    chat template writes its own."""
    add_generation_prompt: bool | None = True
    """End a conversation with the beginning of the answer."""
    continue_final_message: bool | None = False
    """Leave its last message open; only together with `add_generation_prompt` false."""
    chat_template: Template | None = None
    """A Jinja template in place of the model's; only with --trust-request-chat-template."""
    chat_template_kwargs: TemplateKwargs | None = None
    """Variables for the model's chat template; up to 64 KiB."""
    return_token_strs: bool | None = False
    """Give the tokens as text, too."""

    def check(self) -> None:
        """Refuse what decoding cannot see.

        Raises
        ------
        RequestError
            There is neither a prompt nor a conversation, or there are both.
        """
        if (self.prompt is None) == (self.messages is None):
            raise RequestError(
                "prompt: give either prompt or messages, and not both", parameter="prompt"
            )


class TokenizeResponse(msgspec.Struct, kw_only=True):
    """The tokens."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None
    """Only with `return_token_strs`."""


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    """Tokens to be made text again."""

    model: str | None = None
    """A name that `GET /v1/models` lists; null takes what is served."""
    tokens: Annotated[list[TokenId], Meta(max_length=2**20)]


class DetokenizeResponse(msgspec.Struct, kw_only=True):
    """The text."""

    prompt: str
