"""Token ids to text, one at a time, without ever showing half a character."""

from collections.abc import Iterable, Sequence

import tokenizers
from tokenizers.decoders import DecodeStream

_CONTEXT_TOKENS = 6
"""Prompt tokens that decide how the first output token is spelled (a leading space or none)."""

_BYTES_OF_A_CHARACTER = 4


class Detokenizer:
    """Decodes the output of one request.

    Text is held back until it ends with a whole character; the pieces joined are what decoding all
    ids at once gives.

    Example
    -------
    >>> detokenizer = tokenizer.detokenizer()
    >>> text = "".join(detokenizer.push(i) for i in token_ids) + detokenizer.finish()
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        context_ids: Sequence[int] = (),
        skip_special_tokens: bool = True,
    ) -> None:
        self._backend = backend
        self._skip_special_tokens = skip_special_tokens
        self._shown = self._choose_context(context_ids)
        self._held: list[int] = []
        self._stream = self._new_stream()

    def push(self, token_id: int) -> str:
        """Take one token and return the text that became whole; often empty."""
        self._held.append(token_id)
        try:
            text = self._stream.step(self._backend, token_id)
        except Exception as error:
            # The text so far changed its spelling, so that the stream lost its place:
            # https://github.com/huggingface/tokenizers/issues/1666
            if "Invalid prefix encountered" not in str(error):
                raise
            return self._restart()
        if not text:
            return ""
        self._shown, self._held = self._held, []
        return text

    def push_all(self, token_ids: Iterable[int]) -> str:
        """Take several tokens and return the text that became whole."""
        return "".join(map(self.push, token_ids))

    def finish(self) -> str:
        """Return what was held back; bytes that never became a character are U+FFFD."""
        return self._restart() if self._held else ""

    def _restart(self) -> str:
        """Show the held tokens as they are, and begin a new stream after them."""
        before = self._decode(self._shown)
        both = self._decode(self._shown + self._held)
        text = both[len(before) :] if both.startswith(before) else self._decode(self._held)
        self._shown, self._held = self._held, []
        self._stream = self._new_stream()
        return text

    def _choose_context(self, token_ids: Sequence[int]) -> list[int]:
        """Return the last tokens, from a whole character on: half a one holds up what follows."""
        context: list[int] = []
        for size in range(_CONTEXT_TOKENS, _CONTEXT_TOKENS + _BYTES_OF_A_CHARACTER):
            context = list(token_ids[-size:])
            if not self._decode(context).startswith("\ufffd"):
                break
        return context

    def _new_stream(self) -> DecodeStream:
        return DecodeStream(ids=self._shown, skip_special_tokens=self._skip_special_tokens)

    def _decode(self, token_ids: list[int]) -> str:
        return str(self._backend.decode(token_ids, skip_special_tokens=self._skip_special_tokens))
