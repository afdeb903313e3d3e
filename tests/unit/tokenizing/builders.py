"""Small tokenizers, trained on the spot, as folders and as GGUF metadata."""

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from quire_engine.models.loading.gguf_file import Metadata
from quire_engine.tokenizing.ggml import PRE_TOKENIZERS

CONTROL = ["<|end|>", "<|start|>"]
CORPUS = [
    "the cat sat on the mat, and the dog ate 123 of 4567 bones! the end.\n\n",
    "Größe, naïve café — 日本語の文章 and emoji 🙂🙂 🎉 in one text.  two  spaces\tand tabs\r\n",
    "def f(x):\n    return x + 1  # it's what they'll do, we've said\n",
]
CHATML = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def train_byte_level(pre: str = "smollm", *, vocab_size: int = 600) -> tokenizers.Tokenizer:
    """A byte-level BPE tokenizer with two control tokens and all 256 bytes."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[pre]()
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=CONTROL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def ggml_metadata(tokenizer: tokenizers.Tokenizer, pre: str, **changes: Any) -> Metadata:
    """The metadata that a GGUF file of a tiny Llama with this tokenizer has."""
    description = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(description["vocab"], key=description["vocab"].__getitem__)
    metadata: Metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": list(tokens),
        "tokenizer.ggml.token_type": [3 if token in CONTROL else 1 for token in tokens],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in description["merges"]],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 0,
    }
    return {key: value for key, value in (metadata | changes).items() if value is not None}


def write_folder(folder: Path, tokenizer: tokenizers.Tokenizer, **settings: Any) -> Path:
    """A Hugging Face folder without weights; `settings` go into tokenizer_config.json."""
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {"bos_token": "<|start|>", "eos_token": {"content": "<|end|>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(named | settings))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": tokenizer.get_vocab_size(),
        "max_position_embeddings": 64,
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder
