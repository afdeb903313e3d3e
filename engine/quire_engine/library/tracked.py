"""A request of the library between submission and result."""

from collections.abc import Callable

from quire_engine.library.results import EndedBy, Result
from quire_engine.protocol.messages import FinishReason, TokenDelta
from quire_engine.protocol.sampling import TokenLogprobs
from quire_engine.server.text_maker import TextMaker

Listener = Callable[[str, Result | None], None]
"""Told each new piece of text, and with the last one the result."""

_ANSWERED = (None, FinishReason.STOP, FinishReason.LENGTH)


class TrackedRequest:
    """Collects what one request's tokens come to.

    Parameters
    ----------
    maker
        Makes text of its tokens.
    deadline
        When it must have ended, in seconds of the engine's clock.
    listener
        Told as the text grows; None where only the result counts.
    """

    def __init__(
        self,
        request_id: str,
        *,
        num_prompt_tokens: int,
        maker: TextMaker,
        deadline: float,
        listener: Listener | None,
    ) -> None:
        self.request_id = request_id
        self.deadline = deadline
        self.is_streamed = listener is not None
        self._num_prompt_tokens = num_prompt_tokens
        self._maker = maker
        self._listener = listener
        self._token_ids: list[int] = []
        self._scores: list[TokenLogprobs] = []
        self._pieces: list[str] = []

    def take(self, delta: TokenDelta) -> Result | None:
        """Take what a step brought; the result, if it was the last."""
        if delta.finish_reason not in _ANSWERED:
            return self.end("error", error=delta.error)
        piece = self._maker.take(delta)
        self._token_ids += delta.token_ids[: self._maker.num_generated - len(self._token_ids)]
        self._scores += [token.score for token in piece.tokens or () if token.score is not None]
        if self._maker.finish_reason is None:
            self._show(piece.text)
            return None
        reason: EndedBy = "stop" if self._maker.finish_reason == "stop" else "length"
        return self.end(reason, text=piece.text)

    def end(self, reason: EndedBy, *, error: str | None = None, text: str = "") -> Result:
        """End with what there is, and a last piece of text."""
        self._pieces.append(text)
        result = Result(
            request_id=self.request_id,
            output_text="".join(self._pieces),
            token_ids=tuple(self._token_ids),
            num_prompt_tokens=self._num_prompt_tokens,
            finish_reason=reason,
            stop_reason=self._maker.stop_reason,
            logprobs=tuple(self._scores),
            prompt_logprobs=tuple(self._maker.prompt_scores),
            error=error,
        )
        if self._listener is not None:
            self._listener(text, result)
        return result

    def _show(self, text: str) -> None:
        self._pieces.append(text)
        if self._listener is not None and text:
            self._listener(text, None)
