"""From the tokens of one sequence to the pieces of its text, and the reason of its end.

    tokens ──► Detokenizer ──► StopStrings ──► ReasoningSplitter ──► Piece(text, scored tokens)

The pieces joined depend on the tokens alone, never on how they were cut into deltas: an answer is
the same streamed and whole.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from quire_engine.protocol.messages import FinishReason, TokenDelta
from quire_engine.protocol.sampling import SamplingParams, TokenLogprobs
from quire_engine.server.schemas.usage import EndReason
from quire_engine.tokenizing.reasoning import CLOSE_TAG, OPEN_TAG, ReasoningSplitter, ReasoningStart
from quire_engine.tokenizing.stop_strings import StopStrings
from quire_engine.tokenizing.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ReasoningChoices:
    """How an answer's reasoning is told from the rest."""

    start: ReasoningStart | None
    """Where the answer begins; None for one that has no reasoning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextChoices:
    """How a request wants its tokens turned into text."""

    stops: tuple[str, ...] = ()
    includes_stop: bool = False
    """Whether what ended the text, a stop string or token, is a part of it."""
    skips_special_tokens: bool = True
    echo: str | None = None
    """The prompt's text, where the answer is to begin with it."""
    reasoning: ReasoningChoices | None = None
    """How the model's reasoning is told from its answer; None where it is not."""
    control_tokens: Mapping[int, str] = field(default_factory=dict)
    """Control tokens that are left in the text whatever else is left out, by their ids."""
    is_echo_only: bool = False
    """Whether the prompt is the whole answer; the one token that must be generated is dropped."""


class ScoredToken(NamedTuple):
    """A token of an answer, for those who want scores."""

    token_id: int
    offset: int
    """Characters of the answer's text before it."""
    score: TokenLogprobs | None
    """None for a prompt's first token: nothing says how likely it was."""


class Piece(NamedTuple):
    """What a delta adds to an answer."""

    text: str
    tokens: list[ScoredToken] | None = None
    """None if nobody wants scores; else the delta's tokens, though their text may be held back."""
    reasoning: str = ""
    """What it adds to the reasoning, which comes before the text."""


class TextMaker:
    """Makes the text of one sequence.

    After a piece with which `finish_reason` is set, all deltas are dropped.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_token_ids: Sequence[int],
        sampling: SamplingParams,
        choices: TextChoices,
    ) -> None:
        self._tokenizer = tokenizer
        self._prompt_token_ids = prompt_token_ids
        self._sampling = sampling
        self._choices = choices
        self._detokenizer = tokenizer.detokenizer(
            context_ids=prompt_token_ids, skip_special_tokens=choices.skips_special_tokens
        )
        self._stops = StopStrings(choices.stops, include_stop=choices.includes_stop)
        start = None if choices.reasoning is None else choices.reasoning.start
        self._splitter = None if start is None else ReasoningSplitter(start)
        is_hidden = start is not None and choices.skips_special_tokens
        self._tags = _find_special_tags(tokenizer) if is_hidden else {}
        if choices.skips_special_tokens:
            self._tags = {**self._tags, **choices.control_tokens}
        self._is_first = True
        self._num_characters = 0
        self.num_generated = 0
        """Tokens up to the one that ended the text."""
        self.finish_reason: EndReason | None = None
        self.stop_reason: int | str | None = None
        """The stop string or stop token that ended it; None for a model's own end token."""
        self.prompt_scores: list[TokenLogprobs] = []

    @property
    def num_reasoning(self) -> int | None:
        """Tokens of the reasoning; None where it is not told from the answer."""
        if self._choices.reasoning is None:
            return None
        return 0 if self._splitter is None else self._splitter.num_tokens

    def take(self, delta: TokenDelta) -> Piece:
        """Take what a step brought, perhaps several tokens, and the end with them."""
        tokens: list[ScoredToken] | None = [] if self._sampling.num_logprobs is not None else None
        text = self._begin(delta, tokens) if self._is_first else ""
        if self._choices.is_echo_only:
            self.finish_reason = "length"
            return Piece(text, tokens)
        reasoning = ""
        num_shown = len(delta.token_ids) - self._ends_with_stop_token(delta)
        for index, token_id in enumerate(delta.token_ids):
            if tokens is not None:
                score = delta.logprobs[index] if delta.logprobs else None
                tokens.append(ScoredToken(token_id, self._num_characters, score))
            self.num_generated += 1
            shown = self._push(self._spell(token_id) if index < num_shown else "")
            if self._splitter is None:
                text += shown
            else:
                thought, said = self._splitter.push(shown)
                self._splitter.note_token()
                reasoning, text = reasoning + thought, text + said
            if self._stops.found is not None:
                break
        if self._stops.found is not None or delta.finish_reason is not None:
            thought, said = self._finish()
            reasoning, text = reasoning + thought, text + said
        self._note_end(delta)
        return Piece(text, tokens, reasoning)

    def _spell(self, token_id: int) -> str:
        text = self._detokenizer.push(token_id)
        return text + self._tags[token_id] if token_id in self._tags else text

    def _finish(self) -> tuple[str, str]:
        """Return what was held back of reasoning and text."""
        text = ""
        if self._stops.found is None:
            text = self._push(self._detokenizer.finish()) + self._stops.finish()
        if self._splitter is None:
            return "", text
        thought, said = self._splitter.push(text)
        last_thought, last_said = self._splitter.finish()
        return thought + last_thought, said + last_said

    def _begin(self, delta: TokenDelta, tokens: list[ScoredToken] | None) -> str:
        """Keep the prompt's scores, and return its text if it is to be echoed."""
        self._is_first = False
        self.prompt_scores = delta.prompt_logprobs or []
        if self._choices.echo is None:
            return ""
        if tokens is not None and delta.prompt_logprobs is not None:
            tokens += self._prompt_tokens()
        self._num_characters = len(self._choices.echo)
        return self._choices.echo

    def _prompt_tokens(self) -> list[ScoredToken]:
        detokenizer = self._tokenizer.detokenizer(
            skip_special_tokens=self._choices.skips_special_tokens
        )
        tokens, offset = [], 0
        scores = [None, *self.prompt_scores]
        for token_id, score in zip(self._prompt_token_ids, scores, strict=True):
            tokens.append(ScoredToken(token_id, offset, score))
            offset += len(detokenizer.push(token_id))
        return tokens

    def _push(self, text: str) -> str:
        """Hand on text that became whole; no stop string may end among the first min_tokens."""
        self._num_characters += len(text)
        may_end = self.num_generated > self._sampling.min_tokens
        return self._stops.push(text, may_end=may_end)

    def _ends_with_stop_token(self, delta: TokenDelta) -> bool:
        """Whether the last token ended the text and is no part of it."""
        return (
            delta.finish_reason is FinishReason.STOP
            and not self._choices.includes_stop
            and delta.token_ids[-1:] != []
            and delta.token_ids[-1] in self._sampling.stop_token_ids
        )

    def _note_end(self, delta: TokenDelta) -> None:
        if self._stops.found is not None:
            self.finish_reason, self.stop_reason = "stop", self._stops.found
        elif delta.finish_reason is FinishReason.STOP:
            self.finish_reason = "stop"
            last = delta.token_ids[-1] if delta.token_ids else None
            is_wish = last in self._sampling.stop_token_ids
            self.stop_reason = (
                last if is_wish and last not in self._tokenizer.eos_token_ids else None
            )
        elif delta.finish_reason is not None:
            self.finish_reason = "length"


def _find_special_tags(tokenizer: Tokenizer) -> dict[int, str]:
    """Return the tags of a reasoning that are control tokens, which the text is without."""
    ids = {tag: tokenizer.token_id(tag) for tag in (OPEN_TAG, CLOSE_TAG)}
    special = tokenizer.special_token_ids
    return {found: tag for tag, found in ids.items() if found is not None and found in special}
