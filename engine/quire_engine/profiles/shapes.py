"""Sizes of decoder-only transformers: parameters, bytes of weights and of KV.

All shapes here are Llama-like: grouped-query attention, gated feed-forward, RMSNorm, no biases.
Parameter counts equal those of the published checkpoints.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from quire_engine.errors import ConfigError

ComputeType = Literal["float32", "bfloat16", "float16"]
Quantization = Literal["none", "fp8", "int8", "int4"]

BYTES_PER_ELEMENT: dict[ComputeType, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
BYTES_PER_QUANTIZED_WEIGHT: dict[Quantization, float] = {
    "fp8": 1.0,
    "int8": 1.0,
    # groups of 128 share a 2-byte scale and a half-byte zero point
    "int4": 0.5 + 2.5 / 128,
}


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """The sizes of one model; everything that memory and time depend on."""

    name: str
    """As in `--model-shape`."""
    hidden_size: int
    """Width of the residual stream."""
    num_layers: int
    """Transformer layers."""
    num_q_heads: int
    """Query heads of a layer."""
    num_kv_heads: int
    """Key and value heads of a layer; divides num_q_heads."""
    head_dim: int
    """Elements of one head."""
    ffn_size: int
    """Width of the gated feed-forward."""
    vocab_size: int
    """Rows of the embedding."""
    max_model_len: int
    """Most tokens of prompt and output together, by the model's own configuration."""
    has_tied_embedding: bool = False
    """Whether the output head is the input embedding."""
    has_qk_norm: bool = False
    """Whether queries and keys are normalised per head, as in Qwen3."""

    def __post_init__(self) -> None:
        layer = (
            self.hidden_size,
            self.num_q_heads,
            self.num_kv_heads,
            self.head_dim,
            self.ffn_size,
        )
        if min(*layer, self.num_layers, self.vocab_size, self.max_model_len) < 1:
            raise ConfigError(f"model shape {self.name!r}: every size must be at least 1")
        if self.num_q_heads % self.num_kv_heads:
            raise ConfigError(
                f"model shape {self.name!r}: num_q_heads {self.num_q_heads} must be a multiple "
                f"of num_kv_heads {self.num_kv_heads}"
            )

    @property
    def network(self) -> "ModelShape":
        """The same sizes without a name and a length: equal for models that compute the same.

        Llama 3 and 3.1 of 8B differ in weights and in how far they reach, and not in what a step
        takes.
        """
        return replace(self, name="", max_model_len=1)

    @property
    def num_embedding_parameters(self) -> int:
        """Parameters of the input embedding alone; as many as those of the output head."""
        return self.vocab_size * self.hidden_size

    @property
    def num_linear_parameters(self) -> int:
        """Parameters of the layers' matrices: all that quantization applies to."""
        attention = 2 * self.hidden_size * self.head_dim * (self.num_q_heads + self.num_kv_heads)
        return self.num_layers * (attention + 3 * self.hidden_size * self.ffn_size)

    @property
    def num_norm_parameters(self) -> int:
        """Parameters of all norms."""
        per_layer = 2 * self.hidden_size + (2 * self.head_dim if self.has_qk_norm else 0)
        return self.num_layers * per_layer + self.hidden_size

    @property
    def num_parameters(self) -> int:
        """All parameters; a tied embedding counts once."""
        embeddings = self.num_embedding_parameters * (1 if self.has_tied_embedding else 2)
        return embeddings + self.num_linear_parameters + self.num_norm_parameters

    def weight_bytes(
        self, dtype: ComputeType = "bfloat16", quantization: Quantization = "none"
    ) -> int:
        """Bytes of all weights; embedding, head and norms stay in `dtype` when quantized."""
        embedding = self.num_embedding_parameters * BYTES_PER_ELEMENT[dtype]
        stored_besides = embedding if not self.has_tied_embedding else 0
        return self.bytes_read_per_step(dtype, quantization) + stored_besides

    def bytes_read_per_step(
        self, dtype: ComputeType = "bfloat16", quantization: Quantization = "none"
    ) -> int:
        """Bytes of weights that a step reads: all but the input embedding's table."""
        per_element = BYTES_PER_ELEMENT[dtype]
        per_linear = BYTES_PER_QUANTIZED_WEIGHT.get(quantization, float(per_element))
        plain = self.num_embedding_parameters + self.num_norm_parameters
        return plain * per_element + round(self.num_linear_parameters * per_linear)

    def kv_bytes_per_token(self, bytes_per_element: int = 2) -> int:
        """Bytes of keys and values that one token keeps over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * bytes_per_element

    def kv_bytes_per_block(self, block_size: int, bytes_per_element: int = 2) -> int:
        """Bytes of one KV block of `block_size` tokens over all layers."""
        return block_size * self.kv_bytes_per_token(bytes_per_element)


def find_shape(name: str) -> ModelShape:
    """The shape called `name`, whatever its case.

    Raises
    ------
    ConfigError
        There is none; the message lists those there are.
    """
    shape = SHAPES.get(name.lower())
    if shape is None:
        raise ConfigError(f"unknown model shape {name!r}: choose one of {', '.join(SHAPES)}")
    return shape


def _index_by_name(shapes: Iterable[ModelShape]) -> dict[str, ModelShape]:
    return {shape.name: shape for shape in shapes}


def _llama(name: str, *sizes: int, tied: bool = False, qk_norm: bool = False) -> ModelShape:
    """A row of the table below, in the order of its heading."""
    hidden, layers, q_heads, kv_heads, head_dim, ffn, vocab, max_len = sizes
    return ModelShape(
        name=name,
        hidden_size=hidden,
        num_layers=layers,
        num_q_heads=q_heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        ffn_size=ffn,
        vocab_size=vocab,
        max_model_len=max_len,
        has_tied_embedding=tied,
        has_qk_norm=qk_norm,
    )


SHAPES = _index_by_name(
    [
        #     name            hidden layers  q  kv  dim    ffn   vocab  max_len
        _llama("smollm2-135m", 576, 30, 9, 3, 64, 1536, 49152, 8192, tied=True),
        _llama("llama3.2-1b", 2048, 16, 32, 8, 64, 8192, 128256, 131072, tied=True),
        _llama("llama3.2-3b", 3072, 28, 24, 8, 128, 8192, 128256, 131072, tied=True),
        _llama("llama3-8b", 4096, 32, 32, 8, 128, 14336, 128256, 8192),
        _llama("llama3.1-8b", 4096, 32, 32, 8, 128, 14336, 128256, 131072),
        _llama("llama3-70b", 8192, 80, 64, 8, 128, 28672, 128256, 8192),
        _llama("mistral-7b", 4096, 32, 32, 8, 128, 14336, 32768, 32768),
        _llama("qwen3-0.6b", 1024, 28, 16, 8, 128, 3072, 151936, 40960, tied=True, qk_norm=True),
        _llama("qwen3-1.7b", 2048, 28, 16, 8, 128, 6144, 151936, 40960, tied=True, qk_norm=True),
        _llama("qwen3-4b", 2560, 36, 32, 8, 128, 9728, 151936, 40960, tied=True, qk_norm=True),
        _llama("qwen3-8b", 4096, 36, 32, 8, 128, 12288, 151936, 40960, qk_norm=True),
        _llama("qwen3-14b", 5120, 40, 40, 8, 128, 17408, 151936, 40960, qk_norm=True),
        _llama("qwen3-32b", 5120, 64, 64, 8, 128, 25600, 151936, 40960, qk_norm=True),
    ]
)
"""Known models by name."""
