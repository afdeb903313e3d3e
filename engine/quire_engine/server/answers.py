"""How answers look in bytes: whole, and event by event.

The text events of one answer in a stream differ in one string only: one is encoded with a marker
in that string's place, and the bytes around the marker are reused for all others.
"""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from msgspec import UNSET, UnsetType
from starlette.responses import Response

from quire_engine.server.errors import ApiError
from quire_engine.server.schemas.chat import (
    AnswerMessage,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatDelta,
    ChatRequest,
    ChatResponse,
)
from quire_engine.server.schemas.completions import CompletionChoice, CompletionResponse
from quire_engine.server.schemas.logprobs import PromptLogprobs, StopReason
from quire_engine.server.schemas.parameters import GenerationParameters
from quire_engine.server.schemas.usage import ChatEndReason, EndReason, Usage
from quire_engine.server.shown_scores import show_chat_scores, show_completion_scores
from quire_engine.server.text_maker import Piece, ScoredToken
from quire_engine.tokenizing.spelling import Spelling

DONE_EVENT = b"data: [DONE]\n\n"
_MARKER = "\x00text"
_encode = msgspec.json.Encoder().encode

UsageField = Usage | UnsetType | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeAnswer:
    """One answer that has ended."""

    index: int
    text: str
    reasoning: str = ""
    tokens: list[ScoredToken] | None
    finish_reason: EndReason
    stop_reason: StopReason
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class AnswerFormat(ABC):
    """The bytes of one response; its id, time and model name stay the same throughout."""

    def __init__(
        self, request: GenerationParameters, spelling: Spelling | None, id_prefix: str
    ) -> None:
        self.id = f"{id_prefix}-{uuid.uuid4().hex}"
        self.model = request.model
        self.created = int(time.time())
        self.includes_usage = request.includes_usage()
        self.includes_continuous_usage = request.includes_continuous_usage()
        self._spelling = spelling
        self._around_text: dict[tuple[int, bool], list[bytes]] = {}

    def text_event(self, index: int, piece: Piece, usage: Usage | None = None) -> bytes:
        """A piece of one answer's text.

        Parameters
        ----------
        usage
            The counts so far, where each event has them.
        """
        is_mixed = bool(piece.text and piece.reasoning)
        if piece.tokens is not None or usage is not None or is_mixed:
            return encode_event(self._text_chunk(index, piece, self._usage_field(usage)))
        is_reasoning = bool(piece.reasoning)
        around = self._around_text.get((index, is_reasoning))
        if around is None:
            marked = Piece("", reasoning=_MARKER) if is_reasoning else Piece(_MARKER)
            event = encode_event(self._text_chunk(index, marked, self._usage_field(None)))
            around = self._around_text[index, is_reasoning] = event.split(_encode(_MARKER))
        return _encode(piece.reasoning or piece.text).join(around)

    def shows(self, piece: Piece) -> bool:
        """Whether there is something in a piece that the client is to see."""
        return bool(piece.text or piece.tokens)

    @abstractmethod
    def first_event(self, index: int) -> bytes:
        """What opens an answer in a stream, perhaps nothing."""

    @abstractmethod
    def finish_event(
        self,
        index: int,
        piece: Piece,
        finish_reason: EndReason,
        stop_reason: StopReason,
        usage: Usage | None = None,
    ) -> bytes:
        """The last piece of an answer's text and why it is the last."""

    @abstractmethod
    def usage_event(self, usage: Usage) -> bytes:
        """The token counts, sent only when asked for."""

    def end_events(self, usage: Usage) -> bytes:
        """What ends a stream, when all its answers have ended."""
        return (self.usage_event(usage) if self.includes_usage else b"") + DONE_EVENT

    def error_events(self, error: ApiError) -> bytes:
        """What ends a stream that failed."""
        return b"data: " + error.body() + b"\n\n" + DONE_EVENT

    @abstractmethod
    def whole(self, answers: Sequence[WholeAnswer], usage: Usage) -> bytes:
        """All answers in one body."""

    @abstractmethod
    def _text_chunk(self, index: int, piece: Piece, usage: UsageField) -> msgspec.Struct:
        """The chunk of a piece of text."""

    def _usage_field(self, usage: Usage | None) -> UsageField:
        """The usage field of chunks before the last: null if the last has one, else left out."""
        if usage is not None:
            return usage
        return None if self.includes_usage else UNSET

    def _spell(self) -> Spelling:
        if self._spelling is None:
            raise RuntimeError("bug: tokens are scored for an answer that cannot spell them")
        return self._spelling


class ChatAnswer(AnswerFormat):
    """Answers of `/v1/chat/completions`.

    Parameters
    ----------
    splits_reasoning
        Whether the model's reasoning is told from its answers.
    """

    def __init__(
        self,
        request: ChatRequest,
        spelling: Spelling | None = None,
        *,
        splits_reasoning: bool = False,
    ) -> None:
        super().__init__(request, spelling, "chatcmpl")
        self._splits_reasoning = splits_reasoning
        self._shows_reasoning = request.include_reasoning is not False

    def first_event(self, index: int) -> bytes:
        """The role, with empty content."""
        choice = ChatChunkChoice(index=index, delta=ChatDelta(role="assistant", content=""))
        return encode_event(self._chunk(choice, self._usage_field(None)))

    def finish_event(
        self,
        index: int,
        piece: Piece,
        finish_reason: EndReason,
        stop_reason: StopReason,
        usage: Usage | None = None,
    ) -> bytes:
        """The last piece of text, if any, and then the finish reason in a chunk of its own."""
        text = self.text_event(index, piece, usage) if self.shows(piece) else b""
        return text + self._end_event(index, finish_reason, stop_reason, usage)

    def usage_event(self, usage: Usage) -> bytes:
        """A chunk without choices."""
        chunk = ChatChunk(
            id=self.id, created=self.created, model=self.model, choices=[], usage=usage
        )
        return encode_event(chunk)

    def whole(self, answers: Sequence[WholeAnswer], usage: Usage) -> bytes:
        """All answers in one body."""
        response = ChatResponse(
            id=self.id,
            created=self.created,
            model=self.model,
            choices=[self._choice(answer) for answer in answers],
            usage=usage,
            prompt_logprobs=answers[0].prompt_logprobs,
        )
        return _encode(response)

    def _choice(self, answer: WholeAnswer) -> ChatChoice:
        tokens = answer.tokens
        return ChatChoice(
            index=answer.index,
            message=self._message(answer),
            logprobs=None if tokens is None else show_chat_scores(tokens, self._spell()),
            finish_reason=answer.finish_reason,
            stop_reason=answer.stop_reason,
        )

    def _end_event(
        self, index: int, reason: ChatEndReason, stop_reason: StopReason, usage: Usage | None
    ) -> bytes:
        choice = ChatChunkChoice(
            index=index, delta=ChatDelta(), finish_reason=reason, stop_reason=stop_reason
        )
        return encode_event(self._chunk(choice, self._usage_field(usage)))

    def _text_chunk(self, index: int, piece: Piece, usage: UsageField) -> ChatChunk:
        logprobs = show_chat_scores(piece.tokens, self._spell()) if piece.tokens else None
        delta = ChatDelta(content=piece.text)
        if piece.reasoning and self._shows_reasoning:
            delta = ChatDelta(
                content=piece.text or None,
                reasoning_content=piece.reasoning,
                reasoning=piece.reasoning,
            )
        choice = ChatChunkChoice(index=index, delta=delta, logprobs=logprobs)
        return self._chunk(choice, usage)

    def shows(self, piece: Piece) -> bool:
        """Whether there is something in a piece that the client is to see."""
        return super().shows(piece) or bool(piece.reasoning and self._shows_reasoning)

    def _message(self, answer: WholeAnswer) -> AnswerMessage:
        """The answer's text, null if there is a reasoning alone, and that where it is told."""
        content = None if answer.reasoning and not answer.text else answer.text
        if not self._splits_reasoning:
            return AnswerMessage(content=content)
        reasoning = answer.reasoning if self._shows_reasoning else None
        return AnswerMessage(
            content=content, reasoning_content=reasoning or None, reasoning=reasoning or None
        )

    def _chunk(self, choice: ChatChunkChoice, usage: UsageField) -> ChatChunk:
        return ChatChunk(
            id=self.id, created=self.created, model=self.model, choices=[choice], usage=usage
        )


class CompletionAnswer(AnswerFormat):
    """Answers of `/v1/completions`."""

    def __init__(self, request: GenerationParameters, spelling: Spelling | None = None) -> None:
        super().__init__(request, spelling, "cmpl")

    def first_event(self, index: int) -> bytes:  # noqa: ARG002
        """Nothing: the first event has text."""
        return b""

    def finish_event(
        self,
        index: int,
        piece: Piece,
        finish_reason: EndReason,
        stop_reason: StopReason,
        usage: Usage | None = None,
    ) -> bytes:
        """The last piece of text together with the finish reason."""
        choice = self._choice(index, piece)
        choice.finish_reason, choice.stop_reason = finish_reason, stop_reason
        return encode_event(self._response([choice], self._usage_field(usage)))

    def usage_event(self, usage: Usage) -> bytes:
        """A chunk without choices."""
        return encode_event(self._response([], usage))

    def whole(self, answers: Sequence[WholeAnswer], usage: Usage) -> bytes:
        """All answers in one body."""
        choices = []
        for answer in answers:
            choice = self._choice(answer.index, Piece(answer.text, answer.tokens))
            choice.finish_reason, choice.stop_reason = answer.finish_reason, answer.stop_reason
            choice.prompt_logprobs = answer.prompt_logprobs
            choices.append(choice)
        return _encode(self._response(choices, usage))

    def _text_chunk(self, index: int, piece: Piece, usage: UsageField) -> CompletionResponse:
        return self._response([self._choice(index, piece)], usage)

    def _choice(self, index: int, piece: Piece) -> CompletionChoice:
        tokens = piece.tokens
        scores = None if tokens is None else show_completion_scores(tokens, self._spell())
        return CompletionChoice(index=index, text=piece.text, logprobs=scores)

    def _response(self, choices: list[CompletionChoice], usage: UsageField) -> CompletionResponse:
        return CompletionResponse(
            id=self.id, created=self.created, model=self.model, choices=choices, usage=usage
        )


def encode_event(chunk: msgspec.Struct) -> bytes:
    """One server-sent event."""
    return b"data: " + _encode(chunk) + b"\n\n"


def json_response(body: msgspec.Struct, status: int = 200) -> Response:
    """A response with this body."""
    return Response(_encode(body), status, media_type="application/json")
