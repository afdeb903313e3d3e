"""Many streams at once by OpenAI's client, each request tried once, and what became of them."""

import asyncio
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import openai

from tests.api.servers import wait_until

_TIMEOUT_SECONDS = 300.0
_WAIT_SECONDS = 180.0
COMPLETE, CUT = "complete", "cut"


@dataclass
class Outcome:
    """What became of one request."""

    kind: str = ""
    """Complete, cut after its head, or the name of the error that came in its place."""
    request_id: str = ""
    """As the gateway has it in its log; empty where no head came."""
    num_chunks: int = 0
    words: str = ""
    ended_at: float = 0.0
    """Monotonic."""


@dataclass
class Load:
    """So many streams at all times, while the block lasts; its end lets them end.

    Parameters
    ----------
    client
        What makes `openai.AsyncOpenAI`; it does not try again.
    question
        Arguments of a chat completion.
    """

    client: dict[str, Any]
    question: dict[str, Any]
    num_streams: int = 10
    pause_seconds: float = 0.0
    """Of each stream, between an answer and the next question."""
    outcomes: list[Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._is_over = threading.Event()
        self._open = [Outcome() for _ in range(self.num_streams)]
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Self:
        self.begin()
        self.wait_until_all_stream()
        return self

    def begin(self) -> None:
        """Start asking, without a block of code."""
        self._thread.start()

    def finish(self) -> list[Outcome]:
        """Let streams end; returns what became of all."""
        self._is_over.set()
        self._thread.join(_TIMEOUT_SECONDS)
        assert not self._thread.is_alive(), "streams do not end"
        return self.outcomes

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.finish()

    @property
    def failures(self) -> list[Outcome]:
        """Requests that did not end as they should."""
        return [one for one in self.outcomes if one.kind != COMPLETE]

    @property
    def cut(self) -> list[Outcome]:
        """Streams that broke off after their head."""
        return [one for one in self.outcomes if one.kind == CUT]

    def wait_until_all_stream(self) -> None:
        """Wait until each of them has been given a piece."""
        wait_until(lambda: all(one.num_chunks for one in self._open), _WAIT_SECONDS)

    def wait_for_more(self, rounds: int = 2) -> None:
        """Wait until so many rounds more have ended, well or not."""
        wanted = len(self.outcomes) + rounds * self.num_streams
        wait_until(lambda: len(self.outcomes) >= wanted, _WAIT_SECONDS)

    def table(self, title: str) -> str:
        """Requests, errors by kind, cut streams."""
        kinds = Counter(one.kind for one in self.outcomes)
        rows = {
            "requests": len(self.outcomes),
            "chunks": sum(one.num_chunks for one in self.outcomes),
            "cut streams": kinds.pop(CUT, 0),
            "complete": kinds.pop(COMPLETE, 0),
            **{f"error: {kind}": number for kind, number in kinds.items()},
        }
        lines = [f"  {name:<40}{number:>8}" for name, number in rows.items()]
        words = sorted({one.words for one in self.failures})
        return "\n".join(["", title, *lines, *(f"  {one}" for one in words)])

    async def _run(self) -> None:
        once = self.client | {"max_retries": 0, "timeout": _TIMEOUT_SECONDS}
        async with openai.AsyncOpenAI(**once) as client:
            await asyncio.gather(*(self._go_on(client, n) for n in range(self.num_streams)))

    async def _go_on(self, client: openai.AsyncOpenAI, number: int) -> None:
        while not self._is_over.is_set():
            outcome = self._open[number] = Outcome()
            try:
                await self._ask(client, outcome)
            except openai.OpenAIError as error:
                outcome.kind = CUT if outcome.request_id else _kind_of(error)
                outcome.words = f"{type(error).__name__}: {error}"[:300]
            outcome.ended_at = time.monotonic()
            self.outcomes.append(outcome)
            if outcome.kind != COMPLETE:
                await asyncio.sleep(0.2)  # or refusals would be all that there is
            await asyncio.sleep(self.pause_seconds)

    async def _ask(self, client: openai.AsyncOpenAI, outcome: Outcome) -> None:
        stream = await client.chat.completions.create(**self.question, stream=True)
        outcome.request_id = stream.response.headers["x-request-id"]
        reason = None
        async for chunk in stream:
            outcome.num_chunks += 1
            reason = chunk.choices[0].finish_reason or reason
        outcome.kind = COMPLETE if reason == "length" else CUT


def _kind_of(error: Exception) -> str:
    status = getattr(error, "status_code", "")
    return f"{type(error).__name__} {status}".strip()
