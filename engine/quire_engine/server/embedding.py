"""Embeddings over HTTP: each input a request of its own to the core, some of them at a time.

They are answered together, in one body. A client that leaves ends all that run.
"""

import asyncio
import base64
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
import numpy as np
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quire_engine.protocol.messages import FinishReason, TokenDelta
from quire_engine.protocol.sampling import TokenLogprobs
from quire_engine.protocol.token_usage import USAGE_HEADER, TokenUsage, write_usage
from quire_engine.server.answering import Answering, PromptTask
from quire_engine.server.errors import ApiError
from quire_engine.server.schemas.embeddings import (
    Embedding,
    EmbeddingRequest,
    EmbeddingResponse,
    EmbeddingUsage,
)
from quire_engine.server.schemas.usage import EndReason
from quire_engine.server.service import Service
from quire_engine.server.text_maker import Piece, TextChoices
from quire_engine.tokenizing.tokenizer import Tokenizer

MAX_AT_A_TIME = 64
"""Inputs of one HTTP request that the core has: thousands would fill its queue, and others would be
refused."""


class EmbeddingMaker:
    """Waits for one input's embedding; stands where others make text of tokens."""

    num_reasoning: int | None = None

    def __init__(self) -> None:
        self.num_generated = 0
        self.stop_reason: int | str | None = None
        self.finish_reason: EndReason | None = None
        self.prompt_scores: list[TokenLogprobs] = []
        self.values = b""
        """Little-endian 4-byte floats, once it has ended."""

    def take(self, delta: TokenDelta) -> Piece:
        """Take what a step brought; only the last one brings the embedding."""
        if delta.finish_reason in (FinishReason.STOP, FinishReason.LENGTH):
            if delta.embedding is None:
                raise RuntimeError("bug: a prompt was computed without its embedding")
            self.values, self.finish_reason = delta.embedding, "stop"
        return Piece("")


@dataclass(frozen=True, slots=True)
class EmbeddingTask(PromptTask):
    """One input."""

    choices: TextChoices = field(default_factory=TextChoices)
    maker: EmbeddingMaker = field(default_factory=EmbeddingMaker)

    def make_maker(self, tokenizer: Tokenizer) -> EmbeddingMaker:  # noqa: ARG002 - there is no text
        """Hand out what waits for the embedding."""
        return self.maker


class EmbeddingAnswer(Response):
    """Lets the engine compute the embeddings, and sends them."""

    def __init__(
        self, service: Service, request: EmbeddingRequest, tasks: Sequence[EmbeddingTask]
    ) -> None:
        super().__init__()
        self._service = service
        self._request = request
        self._tasks = tasks
        self._running: Answering | None = None
        self._has_left = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; called once by the server."""
        with self._service.activity.track():
            watch = asyncio.create_task(self._end_on_disconnect(receive))
            try:
                await self._compute()
                if not self._has_left:
                    body = await self._body()
                    response = Response(body, media_type="application/json")
                    if self._tasks[0].request.gateway:
                        count = write_usage(TokenUsage(self._num_prompt_tokens(), 0))
                        response.raw_headers.append((USAGE_HEADER, count))
                    await response(scope, receive, send)
            except ApiError as error:
                await error.response()(scope, receive, send)
            finally:
                watch.cancel()

    async def _compute(self) -> None:
        """Have all embeddings computed, or as many as the client waits for."""
        for first in range(0, len(self._tasks), MAX_AT_A_TIME):
            if self._has_left:
                return
            answering = Answering(self._service, self._tasks[first : first + MAX_AT_A_TIME])
            with answering:
                self._running = answering
                async for _ in answering.pieces():
                    pass

    async def _end_on_disconnect(self, receive: Receive) -> None:
        with suppress(asyncio.CancelledError):
            while (await receive())["type"] != "http.disconnect":
                pass
            self._has_left = True
            if self._running is not None:
                self._running.cancel()

    async def _body(self) -> bytes:
        """The response as JSON; others get their turn after each vector, which may be long."""
        count = self._num_prompt_tokens()
        whole = EmbeddingResponse(
            data=[],
            model=self._request.model,
            usage=EmbeddingUsage(prompt_tokens=count, total_tokens=count),
        )
        vectors = []
        for index, task in enumerate(self._tasks):
            vectors.append(msgspec.json.encode(self._embedding(index, task.maker.values)))
            await asyncio.sleep(0)
        before, after = msgspec.json.encode(whole).split(b'"data":[]', 1)
        return before + b'"data":[' + b",".join(vectors) + b"]" + after

    def _num_prompt_tokens(self) -> int:
        return sum(len(task.request.prompt_token_ids) for task in self._tasks)

    def _embedding(self, index: int, values: bytes) -> Embedding:
        vector = shorten(values, self._request.dimensions)
        if self._request.encoding_format == "base64":
            return Embedding(index=index, embedding=base64.b64encode(vector.tobytes()).decode())
        return Embedding(index=index, embedding=vector.tolist())


def shorten(
    values: bytes, dimensions: int | None
) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    """Return the first so many values of a vector, brought to length 1.

    Raises
    ------
    ApiError
        500: they are not finite, or all 0.
    """
    vector = np.frombuffer(values, "<f4")[:dimensions].astype(np.float64)
    length = np.linalg.norm(vector)
    if not np.isfinite(length) or length == 0.0:
        raise ApiError(500, "The model's states for this input are not finite.")
    return (vector / length).astype("<f4")
