"""A tokenizer.json by itself, in place of the one that a model brings."""

from pathlib import Path

import tokenizers

from quire_engine.errors import ModelError
from quire_engine.models.facts import read_model_spec
from quire_engine.tokenizing.chat_template import ChatTemplate
from quire_engine.tokenizing.simple import PLAIN_CHAT_TEMPLATE
from quire_engine.tokenizing.tokenizer import Tokenizer


def load_tokenizer_file(path: Path, model_path: Path | None) -> Tokenizer:
    """Load a Hugging Face tokenizer's file; conversations are written as "role: text".

    Parameters
    ----------
    model_path
        Whose end tokens end a generation; None where nothing but the tokenizer is real.

    Raises
    ------
    ModelError
        The file is missing or damaged, or knows more tokens than the model.
    """
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:
        reason = "there is no such file" if not path.exists() else str(error)
        raise ModelError(f"the tokenizer {path} cannot be read: {reason}") from error
    spec = None if model_path is None else read_model_spec(model_path)
    if spec is not None and backend.get_vocab_size() > spec.vocab_size:
        raise ModelError(
            f"the tokenizer {path} has {backend.get_vocab_size()} tokens, but the model only "
            f"{spec.vocab_size}: it is another model's"
        )
    return Tokenizer(
        backend,
        bos_token_id=None,
        eos_token_ids=() if spec is None else spec.eos_token_ids,
        chat_template=ChatTemplate(PLAIN_CHAT_TEMPLATE),
    )
