"""Text to token ids and back. Imports no torch: the API server process lives without it."""

from collections.abc import Mapping, Sequence

import tokenizers

from quire_engine.errors import RequestError
from quire_engine.tokenizing.chat_template import ChatTemplate
from quire_engine.tokenizing.detokenizer import Detokenizer
from quire_engine.tokenizing.spelling import Spelling


class Tokenizer:
    """One model's tokenizer, with the special tokens and the chat template of its files.

    `encode` and `decode` release the GIL, which only the library's batches do: a long text would
    stop all threads else. A tokenizer may be used from several threads.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        bos_token_id: int | None,
        eos_token_ids: tuple[int, ...],
        chat_template: ChatTemplate | None,
        tool_template: ChatTemplate | None = None,
        template_variables: Mapping[str, str] | None = None,
    ) -> None:
        self._backend = backend
        self.bos_token_id = bos_token_id
        """Token that begins a text, where the model has one."""
        self.eos_token_ids = eos_token_ids
        """Tokens that end a generation, in the order of the model's files."""
        self.chat_template = chat_template
        """None where the model has none: then it can't chat."""
        self.tool_template = tool_template
        """The one for conversations with tools, where that is another."""
        self._template_variables = dict(template_variables or {})
        self.vocab_size = backend.get_vocab_size(with_added_tokens=True)
        """Ids are below this; a model's output may be wider (padded)."""
        self.longest_token_characters = max(map(len, backend.get_vocab(with_added_tokens=True)))
        """No token stands for more characters of a text: a cheap bound of its tokens."""
        added = backend.get_added_tokens_decoder()
        self.special_token_ids = frozenset(i for i, token in added.items() if token.special)
        """Control tokens, which `decode` leaves out unless asked for."""
        self.spelling = Spelling(backend)
        """What each token stands for, byte by byte."""

    def use_template(self, source: str) -> None:
        """Write conversations by this template, with tools and without, and not by the model's.

        Raises
        ------
        ModelError
            It is not valid Jinja.
        """
        self.chat_template = ChatTemplate(source, self._template_variables)
        self.tool_template = None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Turn text into token ids.

        Parameters
        ----------
        add_special_tokens
            Whether tokens that the model puts around every text (such as BOS) are added. A chat
            template writes its own, so its text is encoded without.

        Raises
        ------
        RequestError
            The text holds half a UTF-16 pair, which is no character.
        """
        try:
            (encoding,) = self._backend.encode_batch_fast(
                [text], add_special_tokens=add_special_tokens
            )
        except (UnicodeEncodeError, TypeError) as error:
            raise RequestError(
                "the text is not valid Unicode: it contains a lone surrogate", parameter="prompt"
            ) from error
        return list(encoding.ids)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Turn token ids into text; bytes that are no UTF-8 become U+FFFD."""
        (text,) = self._backend.decode_batch([token_ids], skip_special_tokens=skip_special_tokens)
        return str(text)

    def token(self, token_id: int) -> str | None:
        """Return a token as the vocabulary spells it, or None for an id it doesn't have."""
        return self._backend.id_to_token(token_id)

    def token_id(self, token: str) -> int | None:
        """Return the id of a token as the vocabulary spells it, or None."""
        return self._backend.token_to_id(token)

    def detokenizer(
        self, *, context_ids: Sequence[int] = (), skip_special_tokens: bool = True
    ) -> Detokenizer:
        """Start the incremental decoding of one output; see `Detokenizer`."""
        return Detokenizer(
            self._backend, context_ids=context_ids, skip_special_tokens=skip_special_tokens
        )
