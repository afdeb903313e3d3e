"""Which tokens end a generation, as far as a GGUF file tells.

Its metadata name one or two, and often not the one that ends a turn of a chat: Phi-3's files name
`<|endoftext|>` alone, while the model ends its answers with `<|end|>`. So control tokens that are
known to end turns or texts do so too, as in llama.cpp.
"""

from quire_engine.models.metadata import Facts

_NAMED = ("eos", "eot", "eom")
_KNOWN = frozenset(
    {
        "<|eot_id|>",  # Llama 3: a turn, a call of a tool, a text
        "<|eom_id|>",
        "<|end_of_text|>",
        "<|im_end|>",  # ChatML, as of Qwen and SmolLM2
        "<|endoftext|>",
        "<|end|>",  # Phi-3
        "<end_of_turn>",  # Gemma
    }
)
_WHOLE_KINDS = (3, 4)
"""GGML's numbers of control and user-defined tokens."""


def read_end_tokens(facts: Facts) -> tuple[int, ...]:
    """Return the end tokens, those that the metadata name first."""
    ends: list[int] = []
    for name in _NAMED:
        ends += facts.token_ids(f"tokenizer.ggml.{name}_token_id")
    tokens = facts.values.get("tokenizer.ggml.tokens")
    kinds = facts.values.get("tokenizer.ggml.token_type")
    if isinstance(tokens, list) and isinstance(kinds, list):
        for index, (token, kind) in enumerate(zip(tokens, kinds, strict=False)):
            if kind in _WHOLE_KINDS and token in _KNOWN:
                ends.append(index)
    return tuple(dict.fromkeys(ends))
