"""What chat and text completions have in common: the parameters, their types and ranges.

Decoding checks types and ranges in one pass over the bytes, and the OpenAPI document is generated
from the same annotations. Unknown fields are ignored, for SDKs send new ones all the time; known
parameters that are not supported yet are refused, unless their value changes nothing.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from quire_engine.errors import RequestError
from quire_engine.protocol.grammar import GrammarSpec
from quire_engine.server.schemas.formats import (
    Choices,
    JsonSchema,
    ResponseFormat,
    StructuredOutputs,
    read_one_form,
    read_structured_outputs,
)
from quire_engine.server.search_rules import check_search

StopText = Annotated[str, Meta(min_length=1, max_length=1024)]
StopTexts = Annotated[list[StopText], Meta(max_length=64)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Bias = Annotated[float, Meta(ge=-100, le=100)]
MAX_LOGPROBS = 20
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
TokenId = Annotated[int, Meta(ge=0, le=2**32 - 1)]
TopK = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
PositiveCount = Annotated[int, Meta(ge=1, le=2**63 - 1)]


class StreamOptions(msgspec.Struct, kw_only=True):
    """Extras of a stream."""

    include_usage: bool | None = False
    """Send a last chunk with the token counts."""
    continuous_usage_stats: bool | None = False
    """With include_usage: send the counts so far in every chunk."""


class GenerationParameters(msgspec.Struct, kw_only=True):
    """Parameters of both APIs."""

    model: str
    """A name that `GET /v1/models` lists."""
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    """Randomness: 0 always takes the most likely token; default: the model's own, or 1."""
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    """Choose among the most likely tokens that together reach this; default: the model's, or 1."""
    top_k: TopK | None = None
    """Choose among this many of the most likely tokens; -1 and 0 mean all; default: the model's, or
    all."""
    seed: Seed | None = None
    """Equal seeds give equal answers, best effort."""
    max_tokens: PositiveCount | None = None
    """Most tokens to generate."""
    stop: StopText | StopTexts | None = None
    """Generation ends before any of these texts."""
    stop_token_ids: Annotated[list[TokenId], Meta(max_length=64)] | None = None
    """Generation ends after any of these tokens, which are no part of the text."""
    ignore_eos: bool | None = False
    """Go on after the model's end token, up to max_tokens: for benchmarks."""
    stream: bool | None = False
    """Send the answer in server-sent events while it is generated."""
    stream_options: StreamOptions | None = None
    """Only together with `stream`."""
    user: str | None = None
    """Accepted and not used."""
    priority: Annotated[int, Meta(ge=-(2**53), le=2**53)] | None = 0
    """0 or less is interactive, more is background; the header x-quire-priority wins."""

    n: Annotated[int, Meta(ge=1, le=128)] | None = 1
    """Answers to each prompt, which is computed once; seeds count up from the request's."""
    best_of: Annotated[int, Meta(ge=1, le=128)] | None = None
    """Make so many answers, and give the n of the highest mean log probability; not with `stream`
    unless it is n. With `use_beam_search`, the number of beams."""
    use_beam_search: bool | None = False
    """Search for the likeliest answers rather than sample; streams have them whole, at the end."""
    beam_width: Annotated[int, Meta(ge=1, le=128)] | None = None
    """With `use_beam_search`: the number of beams; default: best_of, or n."""
    length_penalty: Annotated[float, Meta(ge=-10, le=10)] | None = 1.0
    """With `use_beam_search`: sums of log probabilities are divided by the number of tokens raised
    to this; the higher, the longer the answers."""
    early_stopping: bool | Literal["never"] | None = False
    """With `use_beam_search`: true ends when as many answers as beams are found, false when none
    that goes on is better by now, "never" when none can become better."""
    presence_penalty: Penalty | None = 0
    """Makes tokens that came in the answer less likely; below 0, more."""
    frequency_penalty: Penalty | None = 0
    """The same, once for each time that the token came."""
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100)] | None = None
    """Above 1, tokens of prompt and answer are less likely to come again."""
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    """Choose among tokens with at least this share of the most likely one's probability."""
    min_tokens: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = 0
    """Neither stop token nor stop text ends an answer before it has more tokens than this."""
    logit_bias: Annotated[dict[str, Bias], Meta(max_length=1024)] | None = None
    """By token id: added to the token's logit, -100 to 100."""
    allowed_token_ids: Annotated[list[TokenId], Meta(min_length=1, max_length=2**20)] | None = None
    """Only these tokens may come."""
    bad_words: Annotated[list[StopText], Meta(max_length=256)] | None = None
    """Texts whose tokens never come one after the other."""
    include_stop_str_in_output: bool | None = False
    """Whether the stop text or token that ended an answer is a part of it."""
    skip_special_tokens: bool | None = True
    """Leave control tokens out of the text."""
    prompt_logprobs: Annotated[int, Meta(ge=0, le=MAX_LOGPROBS)] | None = None
    """Score the prompt's tokens, and so many likely ones beside; not with `stream`."""
    response_format: ResponseFormat | None = None
    """The form of the answer: any text, any JSON object, or JSON by a schema."""
    structured_outputs: StructuredOutputs | None = None
    """The same as vLLM has it: JSON, an expression, a choice of texts, or a grammar."""
    guided_json: str | JsonSchema | None = None
    """vLLM's older name of `structured_outputs.json`."""
    guided_regex: str | None = None
    """vLLM's older name of `structured_outputs.regex`."""
    guided_choice: Choices | None = None
    """vLLM's older name of `structured_outputs.choice`."""
    guided_grammar: str | None = None
    """vLLM's older name of `structured_outputs.grammar`."""

    def stop_texts(self) -> list[str]:
        """All stop texts, none if there are none."""
        if self.stop is None:
            return []
        return [self.stop] if isinstance(self.stop, str) else list(self.stop)

    def num_answers(self) -> int:
        """How many answers to each prompt are wanted."""
        return self.n or 1

    def num_beams(self) -> int:
        """How many beams a search has."""
        return self.beam_width or self.best_of or self.num_answers()

    def num_sequences(self) -> int:
        """How many answers the engine is to make, of which some may not be given."""
        is_sampled = not self.use_beam_search
        return (self.best_of if is_sampled else None) or self.num_answers()

    def num_logprobs(self) -> int | None:
        """How many likely tokens are wanted beside each token's score; None without scores."""
        return None

    def includes_usage(self) -> bool:
        """Whether a stream ends with the token counts."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def includes_continuous_usage(self) -> bool:
        """Whether each chunk of a stream has the token counts so far."""
        options = self.stream_options
        return bool(options and options.include_usage and options.continuous_usage_stats)

    def grammar_spec(self) -> GrammarSpec | None:
        """What the answer has to look like; None if it may be any text.

        Raises
        ------
        RequestError
            Several forms are asked for.
        """
        of_format = self.response_format.grammar_spec() if self.response_format else None
        of_outputs = (
            read_structured_outputs(self.structured_outputs) if self.structured_outputs else None
        )
        older = {
            name: getattr(self, name)
            for name in ("guided_json", "guided_regex", "guided_choice", "guided_grammar")
        }
        specs = [of_format, of_outputs, read_one_form("structured_outputs", older)]
        given = [spec for spec in specs if spec is not None]
        if len(given) > 1:
            raise RequestError(
                "response_format, structured_outputs and guided_*: only one of them at a time",
                parameter="response_format",
            )
        return given[0] if given else None

    def _check_grammar(self) -> None:
        """Refuse what may leave a grammar no token at all."""
        if self.grammar_spec() is None:
            return
        for name in ("allowed_token_ids", "bad_words"):
            if getattr(self, name):
                raise RequestError(
                    f"{name}: not together with a form of the answer; say it in the form",
                    parameter=name,
                )

    def check(self) -> None:
        """Refuse what decoding cannot see.

        Raises
        ------
        RequestError
            A parameter is not supported yet, or contradicts another.
        """
        self._check_grammar()
        if self.stream_options is not None and not self.stream:
            raise RequestError(
                'stream_options: only allowed together with "stream": true',
                parameter="stream_options",
            )
        check_search(self)
        if self.prompt_logprobs is not None and self.stream:
            raise RequestError(
                'prompt_logprobs: not together with "stream": true; leave one of them out',
                parameter="prompt_logprobs",
            )


def refuse_unsupported(
    parameters: GenerationParameters, neutral: dict[str, tuple[Any, ...]]
) -> None:
    """Refuse parameters that would change the answer and are not supported yet.

    Parameters
    ----------
    neutral
        For each such parameter, the values beside null that change nothing.

    Raises
    ------
    RequestError
        One of them has another value.
    """
    for name, values in neutral.items():
        value = getattr(parameters, name)
        if value is None or value in values:
            continue
        hint = f"leave it out or set it to {values[0]!r}" if values else "leave it out"
        raise RequestError(f"{name}: not supported yet; {hint}", parameter=name)
