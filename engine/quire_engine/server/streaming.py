"""Answers over HTTP, whole or as server-sent events; a client that leaves ends its request.

    first event, text events, finish event, usage event (when asked for), [DONE]
    or at any point:                        error event,                  [DONE]

The response talks ASGI itself: Starlette's StreamingResponse costs a task group and several
awaits per chunk, which at thousands of chunks a second is most of the time. Its head is sent only
when the first piece of text is there, so that what fails before has a proper status.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from itertools import chain

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quire_engine.protocol.token_usage import USAGE_HEADER, write_usage, write_usage_comment
from quire_engine.server.activity import Activity
from quire_engine.server.answering import Answering, News
from quire_engine.server.answers import AnswerFormat, WholeAnswer
from quire_engine.server.best_of import BestOf
from quire_engine.server.errors import ApiError
from quire_engine.server.generation import Generation
from quire_engine.server.text_maker import Piece

EVENT_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class GenerationResponse(Response):
    """Lets the engine answer, and sends what it brings."""

    def __init__(
        self,
        answering: Answering,
        answer: AnswerFormat,
        *,
        is_stream: bool,
        activity: Activity,
        best_of: BestOf | None = None,
    ) -> None:
        super().__init__()
        self._best_of = best_of
        self._answering = answering
        self._answer = answer
        self._is_stream = is_stream
        self._activity = activity

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; called once by the server."""
        with self._activity.track():
            watch = asyncio.create_task(_cancel_on_disconnect(receive, self._answering))
            try:
                await self._answer_once(scope, receive, send)
            finally:
                watch.cancel()

    async def _answer_once(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._answering:
                async with aclosing(self._answering.pieces()) as pieces:
                    if self._is_stream:
                        await self._send_stream(pieces, send)
                        return
                    body = await self._collect(pieces)
        except ApiError as error:
            response = error.response()
            if error.status == 429 and self._answering.is_for_gateway:
                self._add_usage(response)  # it has only guessed how long the prompt is
            await response(scope, receive, send)
            return
        if body is not None:
            response = Response(body, media_type="application/json")
            if self._answering.is_for_gateway:
                self._add_usage(response)
            await response(scope, receive, send)

    def _add_usage(self, response: Response) -> None:
        usage = write_usage(self._answering.token_usage)
        response.raw_headers.append((USAGE_HEADER, usage))

    async def _collect(self, pieces: AsyncIterator[News]) -> bytes | None:
        """All answers, or None when the client has left."""
        texts: defaultdict[int, list[Piece]] = defaultdict(list)
        async for news in pieces:
            for generation, piece in news:
                texts[generation.index].append(piece)
        generations = self._answering.generations
        answers = [self._whole(generation, texts[generation.index]) for generation in generations]
        whole = [answer for answer in answers if answer is not None]
        if len(whole) < len(answers):
            return None
        if self._best_of is not None:
            whole = self._best_of.choose(whole, [one.num_generated for one in generations])
        return self._answer.whole(whole, self._answering.usage)

    def _whole(self, generation: Generation, pieces: list[Piece]) -> WholeAnswer | None:
        reason = generation.finish_reason
        if reason is None:
            return None
        scored = [piece.tokens for piece in pieces if piece.tokens is not None]
        return WholeAnswer(
            index=generation.index,
            text="".join(piece.text for piece in pieces),
            reasoning="".join(piece.reasoning for piece in pieces),
            tokens=list(chain.from_iterable(scored)) if scored else None,
            finish_reason=reason,
            stop_reason=generation.stop_reason,
            prompt_logprobs=self._answering.prompt_logprobs(generation),
        )

    async def _send_stream(self, pieces: AsyncGenerator[News], send: Send) -> None:
        first = await anext(pieces, None)  # an error here still has its own status
        if first is None:
            return
        await send({"type": "http.response.start", "status": 200, "headers": EVENT_STREAM_HEADERS})
        try:
            await self._send_events(first, pieces, send)
        except ApiError as error:
            await send_body(send, self._answer.error_events(error), is_last=True)

    async def _send_events(self, first: News, pieces: AsyncIterator[News], send: Send) -> None:
        begun: set[int] = set()
        events = self._events(first, begun)
        if events and not self._answering.has_ended:
            await send_body(send, events, is_last=False)
            events = b""
        async for news in pieces:
            events = self._events(news, begun)
            if self._answering.has_ended:
                break
            if events:
                await send_body(send, events, is_last=False)
        if self._answering.has_ended:  # else the client has left
            end = self._answer.end_events(self._answering.usage)
            if self._answering.is_for_gateway:
                end = write_usage_comment(self._answering.token_usage) + end
            await send_body(send, events + end, is_last=True)

    def _events(self, news: News, begun: set[int]) -> bytes:
        """The events of what came, perhaps none."""
        answer, events = self._answer, []
        usage = self._answering.usage if answer.includes_continuous_usage else None
        for generation, piece in news:
            index, reason = generation.index, generation.finish_reason
            if index not in begun:
                begun.add(index)
                events.append(answer.first_event(index))
            if reason is not None:
                end = answer.finish_event(index, piece, reason, generation.stop_reason, usage)
                events.append(end)
            elif answer.shows(piece):
                events.append(answer.text_event(index, piece, usage))
        return b"".join(events)


async def send_body(send: Send, body: bytes, *, is_last: bool) -> None:
    """Send a piece of a response's body; returns when the socket can take more."""
    await send({"type": "http.response.body", "body": body, "more_body": not is_last})


async def _cancel_on_disconnect(receive: Receive, answering: Answering) -> None:
    with suppress(asyncio.CancelledError):
        while (await receive())["type"] != "http.disconnect":
            pass
        answering.cancel()
