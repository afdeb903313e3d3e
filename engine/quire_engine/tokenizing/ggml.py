"""Builds a tokenizer from the metadata of a GGUF file.

Of byte-level tokenizers GGUF has the vocabulary, the merges and the *name* of the pre-tokenizer,
which is the regular expression that splits text before merging. The expressions are those of the
models' own tokenizer.json, which llama.cpp follows. Of SentencePiece's it has pieces and scores.

Known difference: transformers (5.24) reads "smollm" as GPT-2, which keeps one space with the digits
after it; SmolLM2's tokenizer.json splits each digit off first. So "a  1" has two spaces as one
token here, as the model was trained, and as two in transformers.
"""

from collections.abc import Callable, Sequence

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from quire_engine.errors import ModelError
from quire_engine.models.loading.gguf_file import Metadata
from quire_engine.tokenizing.sentencepiece import Piece, PieceKind, build_from_pieces

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDINGS}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDINGS}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEKKEN = _GPT4O.replace(_ENDINGS, "").replace(r"\p{N}{1,3}", r"\p{N}")


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _smollm() -> pre_tokenizers.PreTokenizer:
    digits = pre_tokenizers.Digits(individual_digits=True)
    return pre_tokenizers.Sequence([digits, _gpt2()])


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([split, to_bytes])


PRE_TOKENIZERS: dict[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "dbrx": lambda: _split(_LLAMA3),
    "deepseek-r1-qwen": lambda: _split(_QWEN2),
    "default": _gpt2,
    "gpt-2": _gpt2,
    "gpt-4o": lambda: _split(_GPT4O),
    "gpt2": _gpt2,
    "llama-bpe": lambda: _split(_LLAMA3),
    "llama-v3": lambda: _split(_LLAMA3),
    "llama3": lambda: _split(_LLAMA3),
    "qwen2": lambda: _split(_QWEN2),
    "smollm": _smollm,
    "tekken": lambda: _split(_TEKKEN),
}
"""By `tokenizer.ggml.pre`: those of Phi-4, of Qwen's distilled from DeepSeek, and so on."""
_WITH_WHOLE_WORDS = {"llama-bpe", "llama-v3", "llama3", "tekken"}
"""Vocabularies of Llama 3 and Mistral have whole words that no merges lead to, and begin texts
with BOS unless the file says otherwise."""
_NORMALIZED = {"qwen2", "deepseek-r1-qwen"}


def build_tokenizer(metadata: Metadata, origin: str) -> tokenizers.Tokenizer:
    """Build a tokenizer: byte-level BPE, or SentencePiece's.

    Parameters
    ----------
    metadata
        Of a GGUF file.
    origin
        The file's name, for messages.

    Raises
    ------
    ModelError
        The file has no tokenizer, or one of a kind that is not supported.
    """
    kind = metadata.get("tokenizer.ggml.model")
    if kind not in ("gpt2", "llama"):
        raise ModelError(
            f"{origin}: tokenizer {kind!r} is not supported; supported are 'gpt2' (byte-level BPE) "
            "and 'llama' (SentencePiece)"
        )
    tokens = _strings(metadata, "tokenizer.ggml.tokens", origin)
    if kind == "llama":
        tokenizer, begins = _build_sentencepiece(metadata, tokens, origin), True
    else:
        pre = _pre_tokenizer(metadata, origin)
        tokenizer, begins = _build_bpe(metadata, tokens, pre, origin), pre in _WITH_WHOLE_WORDS
    _add_bos(tokenizer, tokens, metadata, default=begins)
    return tokenizer


def _build_sentencepiece(
    metadata: Metadata, tokens: Sequence[str], origin: str
) -> tokenizers.Tokenizer:
    scores, types = (
        _numbers(metadata, f"tokenizer.ggml.{name}", len(tokens), origin)
        for name in ("scores", "token_type")
    )
    pieces = [Piece(t, s, int(k)) for t, s, k in zip(tokens, scores, types, strict=True)]
    if metadata.get("tokenizer.ggml.remove_extra_whitespaces", False):
        raise ModelError(f"{origin}: a tokenizer that removes spaces is not supported")
    adds_space = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
    return build_from_pieces(pieces, adds_space=adds_space, origin=origin)


def _build_bpe(
    metadata: Metadata, tokens: Sequence[str], pre: str, origin: str
) -> tokenizers.Tokenizer:
    merges = [_pair(m, origin) for m in _strings(metadata, "tokenizer.ggml.merges", origin)]
    try:
        model = models.BPE(
            vocab={token: i for i, token in enumerate(tokens)},
            merges=merges,
            ignore_merges=pre in _WITH_WHOLE_WORDS,
        )
    except Exception as error:
        raise ModelError(f"{origin}: the tokenizer's merges are damaged: {error}") from error
    tokenizer = tokenizers.Tokenizer(model)
    if pre in _NORMALIZED:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[pre]()
    tokenizer.decoder = decoders.ByteLevel()
    _add_tokens(tokenizer, tokens, metadata)
    return tokenizer


def _pre_tokenizer(metadata: Metadata, origin: str) -> str:
    pre = metadata.get("tokenizer.ggml.pre", "default")
    if pre not in PRE_TOKENIZERS:
        raise ModelError(
            f"{origin}: pre-tokenizer {pre!r} is not supported; supported are "
            f"{', '.join(sorted(PRE_TOKENIZERS))}"
        )
    return str(pre)


def _numbers(metadata: Metadata, key: str, count: int, origin: str) -> list[float]:
    values = metadata.get(key)
    if not isinstance(values, list) or len(values) != count:
        raise ModelError(f"{origin}: {key} must have {count} numbers, one for each token")
    numbers = [value for value in values if isinstance(value, int | float) and value == value]
    if len(numbers) != count:
        raise ModelError(f"{origin}: {key} has entries that are no numbers")
    return [float(number) for number in numbers]


def _strings(metadata: Metadata, key: str, origin: str) -> list[str]:
    value = metadata.get(key)
    if not isinstance(value, list) or not value:
        raise ModelError(f"{origin}: {key} is missing, so text cannot be tokenized")
    return [str(item) for item in value]


def _pair(merge: str, origin: str) -> tuple[str, str]:
    left, separator, right = merge.partition(" ")
    if not (left and separator and right):
        raise ModelError(f"{origin}: tokenizer.ggml.merges is damaged at {merge!r}")
    return left, right


def _add_tokens(tokenizer: tokenizers.Tokenizer, tokens: Sequence[str], metadata: Metadata) -> None:
    """Keep control and user-defined tokens whole; the former are left out of decoded text."""
    types = metadata.get("tokenizer.ggml.token_type")
    if not isinstance(types, list):
        return
    typed = list(zip(tokens, types, strict=False))
    control = [token for token, kind in typed if kind == PieceKind.CONTROL]
    whole = [token for token, kind in typed if kind == PieceKind.USER_DEFINED]
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in control])
    tokenizer.add_tokens([AddedToken(t, normalized=False, special=False) for t in whole])


def _add_bos(
    tokenizer: tokenizers.Tokenizer, tokens: Sequence[str], metadata: Metadata, *, default: bool
) -> None:
    """Begin every text with BOS where the file asks for it."""
    bos = metadata.get("tokenizer.ggml.bos_token_id")
    if not metadata.get("tokenizer.ggml.add_bos_token", default) or not isinstance(bos, int):
        return
    if not 0 <= bos < len(tokens):
        return  # `loading` refuses it by name
    token = tokens[bos]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{token} $A", pair=f"{token} $A {token} $B", special_tokens=[(token, bos)]
    )
