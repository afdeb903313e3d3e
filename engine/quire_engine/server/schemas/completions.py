"""`POST /v1/completions`: request, response and chunk."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from quire_engine.errors import RequestError
from quire_engine.server.schemas.logprobs import (
    CompletionLogprobs,
    PromptLogprobs,
    StopReason,
)
from quire_engine.server.schemas.parameters import (
    MAX_LOGPROBS,
    GenerationParameters,
    TokenId,
    refuse_unsupported,
)
from quire_engine.server.schemas.prompts import Prompts, read_prompts
from quire_engine.server.schemas.usage import EndReason, Usage

MAX_ANSWERS = 2048
"""Most answers that one request has: prompts times n."""
DEFAULT_MAX_TOKENS = 16
"""Tokens to generate when a text completion does not say, as OpenAI has it."""


class CompletionRequest(GenerationParameters, kw_only=True):
    """A text to continue."""

    prompt: str | Annotated[list[TokenId | str | list[TokenId]], Meta(max_length=2**20)]
    """A text or its token ids, or a list of several of either."""
    max_tokens: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    """Most tokens to generate, 16 by default; 0 only together with `echo`."""
    echo: bool | None = False
    """Begin the answer with the prompt; with `logprobs`, with its scores too."""
    logprobs: Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)] | None = None
    """Score each token, and so many likely ones beside."""
    suffix: str | None = None
    """Not supported yet."""

    def wanted_tokens(self) -> int:
        """How many tokens the client wants at most."""
        return DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens

    def num_logprobs(self) -> int | None:
        """How many likely tokens are wanted beside each token's score."""
        return self.logprobs

    def check(self) -> None:
        """Refuse what decoding cannot see; see `GenerationParameters.check`."""
        super().check()
        refuse_unsupported(self, {"suffix": ("",)})
        if self.max_tokens == 0 and not self.echo:
            raise RequestError(
                'max_tokens: 0 is only allowed together with "echo": true', parameter="max_tokens"
            )
        num_made = self.num_beams() if self.use_beam_search else self.num_sequences()
        if len(self.prompts()) * num_made > MAX_ANSWERS:
            raise RequestError(
                f"prompt: prompts times n, best_of or beams are more than {MAX_ANSWERS} answers;"
                " send several requests",
                parameter="prompt",
            )

    def prompts(self) -> Prompts:
        """The prompts, each a text or token ids.

        Raises
        ------
        RequestError
            There is none, one is empty, or texts and ids are mixed.
        """
        return read_prompts(self.prompt, "prompt")


class CompletionChoice(msgspec.Struct, kw_only=True):
    """One continuation, or in a stream what an event adds to it."""

    index: int = 0
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: EndReason | None = None
    stop_reason: StopReason = None
    prompt_logprobs: PromptLogprobs | msgspec.UnsetType = msgspec.UNSET
    """Only if the request has `prompt_logprobs`."""


class CompletionResponse(msgspec.Struct, kw_only=True):
    """A whole continuation, or one event of a stream."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    """In a stream only with `stream_options`: `include_usage` has it in the last chunk and null
    before, `continuous_usage_stats` in each."""
