"""What a decoder must know of its architecture. Imports no torch: the API server reads it too."""

from dataclasses import dataclass
from typing import Literal

from quire_engine.errors import ModelError


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """How rotary frequencies are changed for contexts longer than a model was first trained on."""

    kind: str
    """A member of `ROPE_SCALINGS`, which Hugging Face's configs call `rope_type`."""
    factor: float
    original_context_length: int = 8192
    """The context length before scaling; not used by linear."""
    low_frequency_factor: float = 1.0
    """Only llama3: wavelengths above original_context_length / this are scaled by `factor`."""
    high_frequency_factor: float = 4.0
    """Only llama3: wavelengths below original_context_length / this stay as they are."""
    attention_factor: float = 1.0
    """Only yarn and longrope: cosines and sines are multiplied by this."""
    fast_turns: float = 32.0
    """Only yarn: pairs that turn more often than this in the original context stay as they are."""
    slow_turns: float = 1.0
    """Only yarn: pairs that turn less often than this are scaled by `factor`."""
    rounds_range: bool = True
    """Only yarn: whether the range of pairs between the two is rounded to whole pairs."""
    short_factors: tuple[float, ...] = ()
    """Only longrope: divide the frequencies, one a pair, up to the original context length."""
    long_factors: tuple[float, ...] = ()
    """Only longrope: the same for models that are served with a longer context."""


ROPE_SCALINGS = ("linear", "dynamic", "llama3", "yarn", "longrope")
"""Kinds of scaling that are computed."""


@dataclass(frozen=True, kw_only=True)
class RopeSpec:
    """Rotary position embedding."""

    theta: float
    """Base of the frequencies."""
    scaling: RopeScaling | None = None
    rotary_dim: int | None = None
    """So many of a head's values rotate, the first ones; None: all."""

    @property
    def attention_factor(self) -> float:
        """Return what cosines and sines are multiplied by."""
        return 1.0 if self.scaling is None else self.scaling.attention_factor


Activation = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """The facts of one model: sizes, and by which flags it differs from Llama."""

    architecture: str
    """As the files name it, such as "LlamaForCausalLM" or "llama"."""
    vocab_size: int
    context_length: int
    """Most tokens of prompt and output that the model was made for."""
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_epsilon: float
    rope: RopeSpec
    ties_embeddings: bool
    """Whether the embedding is the output matrix too, where the files have none of its own."""
    eos_token_ids: tuple[int, ...]
    """Tokens that end a generation; may be empty."""
    window: int = 0
    """Queries of windowed layers see so many of the newest keys, their own included."""
    windowed_layers: frozenset[int] = frozenset()
    """Which layers have the window."""
    windowed_rope: RopeSpec | None = None
    """Rotary embedding of windowed layers, where it is another one (Gemma 3)."""
    has_biases: bool = False
    """Whether query, key and value have a bias (Qwen2)."""
    has_head_norms: bool = False
    """Whether query and key heads are normalized before they rotate (Qwen3, Gemma 3)."""
    has_post_norms: bool = False
    """Whether results of attention and MLP are normalized before they are added (Gemma 2 and 3)."""
    norm_offset: float = 0.0
    """What is added to the files' norm weights (1 in Hugging Face's Gemma)."""
    activation: Activation = "silu"
    """Function of the MLP's gate."""
    embedding_scale: float = 1.0
    attention_scale: float | None = None
    """Of query times key; None: head_dim ** -0.5."""
    attention_softcap: float = 0.0
    """Attention scores become cap * tanh(score / cap); 0: they stay."""
    logit_softcap: float = 0.0
    """The same for the output's scores."""
    is_fused: bool = False
    """Whether the files have query, key and value as one matrix, and gate and up too (Phi-3)."""
    interleaves_rotary_rows: bool = False
    """Whether the files' rows of query and key have the two of a rotating pair side by side."""

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            if getattr(self, name) > most:
                raise ModelError(
                    f"the model's {name} of {getattr(self, name)} is absurd: at most {most} is "
                    "supported"
                )
        if self.num_heads % self.num_kv_heads:
            raise ModelError(
                f"the model's {self.num_heads} attention heads are no multiple of its "
                f"{self.num_kv_heads} key-value heads"
            )
        if self.head_dim % 2:
            raise ModelError(f"rotary embedding needs an even head size, not {self.head_dim}")
        rotary_dim = self.rope.rotary_dim or self.head_dim
        if rotary_dim % 2 or not 2 <= rotary_dim <= self.head_dim:
            raise ModelError(
                f"{rotary_dim} values of a head of {self.head_dim} are to rotate, which must be an "
                "even number up to the head's"
            )

    @property
    def softmax_scale(self) -> float:
        """Return what query times key is multiplied by."""
        return self.head_dim**-0.5 if self.attention_scale is None else self.attention_scale

    @property
    def windows(self) -> tuple[int, ...]:
        """Return the windows of all layers, each once."""
        return tuple({self.window_of(layer): None for layer in range(self.num_layers)})

    def window_of(self, layer: int) -> int:
        """Return a layer's window, or 0."""
        return self.window if layer in self.windowed_layers else 0

    def kv_bytes_per_token(self, bytes_per_value: int) -> int:
        """Bytes that one token takes in the KV cache, over all layers."""
        return self.num_layers * 2 * self.num_kv_heads * self.head_dim * bytes_per_value


_MOST = {
    "vocab_size": 1 << 24,
    "context_length": 1 << 28,
    "hidden_size": 1 << 20,
    "intermediate_size": 1 << 22,
    "num_heads": 1 << 14,
    "head_dim": 1 << 12,
    "norm_epsilon": 1.0,
}
"""Sizes beyond these are damage, and would ask for more memory than any machine has."""
