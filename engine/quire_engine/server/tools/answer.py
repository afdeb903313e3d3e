"""Chat completions whose answers may call tools: content and calls, whole or as deltas.

Whole and streamed go through the same parser, so the deltas joined are the whole answer.
"""

from dataclasses import replace

from quire_engine.server.answers import ChatAnswer, WholeAnswer, encode_event
from quire_engine.server.schemas.chat import ChatChoice, ChatChunkChoice, ChatDelta, ChatRequest
from quire_engine.server.schemas.logprobs import StopReason
from quire_engine.server.schemas.tools import (
    CalledFunction,
    FunctionDelta,
    ToolCall,
    ToolCallDelta,
)
from quire_engine.server.schemas.usage import ChatEndReason, EndReason, Usage
from quire_engine.server.text_maker import Piece
from quire_engine.server.tools.events import CallBegin, Content, ToolEvent
from quire_engine.server.tools.ids import make_call_id
from quire_engine.server.tools.parser import ToolParser
from quire_engine.server.tools.use import ToolUse
from quire_engine.tokenizing.spelling import Spelling


class ToolAnswer(ChatAnswer):
    """Answers that may call tools.

    The finish reason is "tool_calls" where an answer with calls came to its own end. One that was
    cut short has "length", and of its last call what there is.
    """

    def __init__(
        self,
        request: ChatRequest,
        spelling: Spelling | None,
        use: ToolUse,
        *,
        splits_reasoning: bool = False,
    ) -> None:
        super().__init__(request, spelling, splits_reasoning=splits_reasoning)
        self._use = use
        self._parsers: dict[int, ToolParser] = {}
        self._num_begun: dict[int, int] = {}

    def text_event(self, index: int, piece: Piece, usage: Usage | None = None) -> bytes:
        """What a piece of text makes sure, perhaps nothing."""
        return self._write(index, piece, self._parser(index).push(piece.text), usage)

    def finish_event(
        self,
        index: int,
        piece: Piece,
        finish_reason: EndReason,
        stop_reason: StopReason,
        usage: Usage | None = None,
    ) -> bytes:
        """What the last piece makes sure, and then the finish reason in a chunk of its own."""
        parser = self._parser(index)
        events = parser.push(piece.text) + parser.finish()
        last = self._write(index, piece, events, usage)
        reason = _end_of(finish_reason, stop_reason, parser)
        return last + self._end_event(index, reason, stop_reason, usage)

    def _parser(self, index: int) -> ToolParser:
        parser = self._parsers.get(index)
        if parser is None:
            parser = self._parsers[index] = self._use.make_parser()
        return parser

    def _write(
        self, index: int, piece: Piece, events: list[ToolEvent], usage: Usage | None
    ) -> bytes:
        """Write events as chunks: reasoning and scores of the piece are in the first."""
        content = "".join(event.text for event in events[:1] if isinstance(event, Content))
        rest = events[1:] if content else events
        first = piece._replace(text=content)
        written = [super().text_event(index, first, usage)] if self.shows(first) else []
        for event in rest:
            if isinstance(event, Content):
                written.append(super().text_event(index, Piece(event.text), usage))
            else:
                written.append(self._call_event(index, event, usage))
        return b"".join(written)

    def _call_event(self, index: int, event: ToolEvent, usage: Usage | None) -> bytes:
        """A call's id and name, or more of its arguments."""
        if isinstance(event, CallBegin):
            self._num_begun[index] = self._num_begun.get(index, 0) + 1
            function = FunctionDelta(name=event.name, arguments="")
            call = ToolCallDelta(index=0, id=self._new_id(), type="function", function=function)
        else:
            call = ToolCallDelta(index=0, function=FunctionDelta(arguments=event.text))
        call.index = self._num_begun[index] - 1
        choice = ChatChunkChoice(index=index, delta=ChatDelta(tool_calls=[call]))
        return encode_event(self._chunk(choice, self._usage_field(usage)))

    def _choice(self, answer: WholeAnswer) -> ChatChoice:
        """The answer with its calls; its content is null if they are all."""
        parser = self._use.make_parser()
        content, calls = "", list[ToolCall]()
        for event in parser.push(answer.text) + parser.finish():
            if isinstance(event, Content):
                content += event.text
            elif isinstance(event, CallBegin):
                function = CalledFunction(name=event.name, arguments="")
                calls.append(ToolCall(id=self._new_id(), function=function))
            else:
                calls[-1].function.arguments += event.text
        choice = super()._choice(replace(answer, text=content))
        if calls:
            choice.message.tool_calls = calls
            choice.message.content = content or None
        choice.finish_reason = _end_of(answer.finish_reason, answer.stop_reason, parser)
        return choice

    def _new_id(self) -> str:
        return make_call_id(is_short=self._use.tool_format.has_short_ids)


def is_cut(reason: EndReason, stop_reason: StopReason, parser: ToolParser) -> bool:
    """Whether an answer did not come to its own end: a stop text in a call's arguments cuts it."""
    return reason == "length" or (parser.is_open and isinstance(stop_reason, str))


def _end_of(reason: EndReason, stop_reason: StopReason, parser: ToolParser) -> ChatEndReason:
    """Why the answer ended: calls are the reason unless it was cut short."""
    is_whole = parser.num_calls and not is_cut(reason, stop_reason, parser)
    return "tool_calls" if is_whole else reason


def make_answer(
    request: ChatRequest,
    spelling: Spelling,
    use: ToolUse | None,
    *,
    splits_reasoning: bool,
) -> ChatAnswer:
    """Make the format of a request's answers, which call tools only where that is asked for."""
    if use is None:
        return ChatAnswer(request, spelling, splits_reasoning=splits_reasoning)
    return ToolAnswer(request, spelling, use, splits_reasoning=splits_reasoning)
