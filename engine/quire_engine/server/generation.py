"""One sequence on its way through the engine: tokens in, pieces of text out."""

from typing import Protocol

from quire_engine.core.stream import DeltaStream
from quire_engine.errors import QuireError
from quire_engine.protocol.messages import FinishReason, TokenDelta
from quire_engine.protocol.sampling import TokenLogprobs
from quire_engine.server.errors import ApiError, from_quire_error
from quire_engine.server.request_clock import RequestClock
from quire_engine.server.schemas.usage import EndReason
from quire_engine.server.text_maker import Piece

_RETRY_SECONDS = 1.0
"""When a refused request is to come again, where the core does not say."""


class Maker(Protocol):
    """Makes pieces of the tokens of one sequence; `TextMaker` is one."""

    num_generated: int
    finish_reason: EndReason | None
    stop_reason: int | str | None
    prompt_scores: list[TokenLogprobs]

    @property
    def num_reasoning(self) -> int | None:
        """Tokens of the reasoning; None where it is not told from the answer."""

    def take(self, delta: TokenDelta) -> Piece:
        """Take what a step brought."""


class Generation:
    """One answer, piece by piece.

    After the last piece `finish_reason` is set; a generation that was cancelled has none.

    Parameters
    ----------
    index
        Its place among the answers of one HTTP request.
    """

    def __init__(
        self,
        index: int,
        deltas: DeltaStream,
        maker: Maker,
        clock: RequestClock,
    ) -> None:
        self.index = index
        self._deltas = deltas
        self._maker = maker
        self._clock = clock
        self._failure: str | None = None
        self.num_cached = 0
        """Tokens of its prompt that were found in the prefix cache."""

    @property
    def request_id(self) -> str:
        """Its id in the core."""
        return self._deltas.request_id

    @property
    def num_generated(self) -> int:
        """Tokens so far."""
        return self._maker.num_generated

    @property
    def num_reasoning(self) -> int | None:
        """Tokens of the reasoning so far; None where it is not told from the answer."""
        return self._maker.num_reasoning

    @property
    def finish_reason(self) -> EndReason | None:
        """Why it ended, or None."""
        return self._maker.finish_reason

    @property
    def stop_reason(self) -> int | str | None:
        """The stop text or token that ended it, or None."""
        return self._maker.stop_reason

    @property
    def prompt_scores(self) -> list[TokenLogprobs]:
        """Scores of the prompt's tokens from the second on, if they were asked for."""
        return self._maker.prompt_scores

    def cancel(self) -> None:
        """End without another piece and free the blocks; safe at any time."""
        self._deltas.close()

    def end(self) -> None:
        """Free what it has, and count its end; once."""
        self.cancel()
        self._clock.end(self._failure or self.finish_reason or "abort")

    async def next_piece(self) -> Piece | None:
        """The next piece of text, perhaps empty, or None after the last.

        Raises
        ------
        ApiError
            The engine failed on this request, stopped, or took too long.
        """
        if self.finish_reason is not None:
            return None
        try:
            delta = await anext(self._deltas, None)
        except QuireError as error:
            self._failure = "error"
            raise from_quire_error(error) from None
        return None if delta is None else self._take(delta)

    def _take(self, delta: TokenDelta) -> Piece:
        self._raise_failure(delta)
        if delta.num_cached_tokens:
            self.num_cached = delta.num_cached_tokens
        self._clock.note(delta)
        piece = self._maker.take(delta)
        if self.finish_reason is not None:
            self.cancel()
        return piece

    def _raise_failure(self, delta: TokenDelta) -> None:
        """Raise what the core says of a request that it refused or could not go on with."""
        if delta.finish_reason is FinishReason.REFUSED:
            self._failure = "refused"
            raise ApiError(
                429,
                f"{delta.error} Send the request again later.",
                code="rate_limit_exceeded",
                retry_after_seconds=delta.retry_after_seconds or _RETRY_SECONDS,
            )
        if delta.finish_reason is FinishReason.ERROR:
            self._failure = "error"
            raise ApiError(500, delta.error or "The engine failed on this request.")
