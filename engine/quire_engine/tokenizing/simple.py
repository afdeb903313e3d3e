"""A tokenizer that needs no model: every byte is a token, and its value is the token's id.

For simulated engines, whose executor makes up bytes of readable text. It is built from the same
parts as a model's own, so that what is tested and measured with it is the code that models use.
"""

import tokenizers
from tokenizers import decoders, models

from quire_engine.tokenizing.chat_template import ChatTemplate
from quire_engine.tokenizing.tokenizer import Tokenizer

PLAIN_CHAT_TEMPLATE = """\
{% for message in messages %}{{ message.role }}: {{ message.content }}
{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"""


def build_simple_tokenizer() -> Tokenizer:
    """Build a byte tokenizer with a plain chat template; it has no end token."""
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return Tokenizer(
        backend,
        bos_token_id=None,
        eos_token_ids=(),
        chat_template=ChatTemplate(PLAIN_CHAT_TEMPLATE),
    )
