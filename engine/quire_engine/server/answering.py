"""All answers of one HTTP request: to each of its prompts n, told apart by their index.

    prompt 0 ──► AddRequest (n sequences) ──► answers 0 .. n - 1
    prompt 1 ──► AddRequest (n sequences) ──► answers n .. 2n - 1

They live and end together: a failure of one ends all, and so does a client that leaves.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from msgspec import UNSET, UnsetType

from quire_engine.protocol.messages import AddRequest
from quire_engine.protocol.token_usage import TokenUsage
from quire_engine.server.errors import RequestTimedOutError
from quire_engine.server.generation import Generation, Maker
from quire_engine.server.request_clock import RequestClock
from quire_engine.server.schemas.logprobs import PromptLogprobs
from quire_engine.server.schemas.usage import Usage, make_usage
from quire_engine.server.service import Service
from quire_engine.server.shown_scores import show_prompt_scores
from quire_engine.server.text_maker import Piece, TextChoices, TextMaker
from quire_engine.tokenizing.tokenizer import Tokenizer

News = list[tuple[Generation, Piece]]


@dataclass(frozen=True, slots=True)
class PromptTask:
    """One prompt, and what is to be made of it."""

    request: AddRequest
    choices: TextChoices
    shows_prompt_scores: bool = False
    """Whether the prompt's scores are given beside the answers, and not only in an echo."""

    def make_maker(self, tokenizer: Tokenizer) -> Maker:
        """Make what turns the tokens of one answer into pieces."""
        request = self.request
        return TextMaker(tokenizer, request.prompt_token_ids, request.sampling, self.choices)


class Answering:
    """Sends the requests, and hands over what comes back.

    Use it in a `with` block: entering sends the requests to the core, leaving frees their blocks,
    whatever happened in between.

    Example
    -------
    >>> with Answering(service, tasks) as answering:
    ...     async for news in answering.pieces():
    ...         for generation, piece in news:
    ...             print(generation.index, piece.text)
    """

    def __init__(self, service: Service, tasks: Sequence[PromptTask]) -> None:
        self._service = service
        self._tasks = tasks
        self._timeout: asyncio.TimerHandle | None = None
        self.generations: list[Generation] = []
        """In the order of their indices; empty before the block is entered."""

    def __enter__(self) -> Self:
        try:
            for task in self._tasks:
                self._send(task)
        except BaseException:
            self._end()
            raise
        seconds = self._service.config.server.request_timeout_seconds
        self._timeout = asyncio.get_running_loop().call_later(seconds, self._on_timeout)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
        self._end()

    @property
    def has_ended(self) -> bool:
        """Whether every answer has its finish reason."""
        return all(generation.finish_reason is not None for generation in self.generations)

    @property
    def usage(self) -> Usage:
        """Token counts so far: each prompt once, and all answers."""
        num_answers = len(self.generations) // len(self._tasks)
        counts = [generation.num_reasoning for generation in self.generations]
        reasoning = [count for count in counts if count is not None]
        return make_usage(
            sum(len(task.request.prompt_token_ids) for task in self._tasks),
            sum(generation.num_generated for generation in self.generations),
            sum(first.num_cached for first in self.generations[::num_answers]),
            sum(reasoning) if reasoning else None,
        )

    @property
    def is_for_gateway(self) -> bool:
        """Whether a gateway asked, which is to be told what the answers took."""
        return self._tasks[0].request.gateway != ""

    @property
    def token_usage(self) -> TokenUsage:
        """What gateways are told."""
        usage = self.usage
        return TokenUsage(
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.prompt_tokens_details.cached_tokens,
        )

    def prompt_logprobs(self, generation: Generation) -> PromptLogprobs | UnsetType:
        """The scores of the prompt that an answer continues, where they are to be shown."""
        num_answers = len(self.generations) // len(self._tasks)
        task = self._tasks[generation.index // num_answers]
        if not task.shows_prompt_scores:
            return UNSET
        return show_prompt_scores(
            task.request.prompt_token_ids,
            generation.prompt_scores,
            self._service.tokenizer.spelling,
        )

    def cancel(self) -> None:
        """End all answers without another piece and free their blocks; safe at any time."""
        self._service.client.abort([generation.request_id for generation in self.generations])
        for generation in self.generations:
            generation.cancel()

    async def pieces(self) -> AsyncGenerator[News]:
        """What comes, as it comes, until all have ended or were cancelled.

        Of each answer one piece at most waits to be taken: what comes meanwhile is merged.

        Raises
        ------
        ApiError
            The engine failed on one of them, stopped, or took too long.
        """
        if len(self.generations) == 1:
            (only,) = self.generations
            while (piece := await only.next_piece()) is not None:
                yield [(only, piece)]
            return
        async for news in self._merged():
            yield news

    async def _merged(self) -> AsyncIterator[News]:
        waiting = {_expect(generation): generation for generation in self.generations}
        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                news: News = []
                for task in sorted(done, key=lambda task: waiting[task].index):
                    piece = task.result()
                    generation = waiting.pop(task)
                    if piece is not None:
                        news.append((generation, piece))
                        waiting[_expect(generation)] = generation
                if news:
                    yield news
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    def _send(self, task: PromptTask) -> None:
        service, request = self._service, task.request
        try:
            streams = service.client.generate(request)
        finally:
            service.arrivals.settle(request.gateway, request.gateway_counter)
        for number, stream in enumerate(streams):
            maker = task.make_maker(service.tokenizer)
            clock = RequestClock(service.metrics, request, computes_prompt=number == 0)
            index = len(self.generations)
            self.generations.append(Generation(index, stream, maker, clock))

    def _end(self) -> None:
        for generation in self.generations:
            generation.end()

    def _on_timeout(self) -> None:
        seconds = self._service.config.server.request_timeout_seconds
        for generation in self.generations:
            error = RequestTimedOutError(f"The request did not end within {seconds:g} seconds.")
            self._service.client.fail(generation.request_id, error)


def _expect(generation: Generation) -> "asyncio.Task[Piece | None]":
    return asyncio.create_task(generation.next_piece())
