"""A tiny random decoder in memory, and what plain float32 attention makes of its weights."""

import torch
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

from quire_engine.models.config import ModelSpec, RopeSpec
from quire_engine.models.loading.base import WeightSource
from quire_engine.models.rope import RotaryEmbedding, rotate


def tiny_spec(**changes: object) -> ModelSpec:
    values: dict[str, object] = {
        "architecture": "llama",
        "vocab_size": 199,
        "context_length": 256,
        "hidden_size": 96,
        "intermediate_size": 160,
        "num_layers": 1,
        "num_heads": 3,
        "num_kv_heads": 1,
        "head_dim": 64,
        "norm_epsilon": 1e-5,
        "rope": RopeSpec(theta=10000.0),
        "ties_embeddings": True,
        "eos_token_ids": (),
    }
    return ModelSpec(**(values | changes))  # type: ignore[arg-type]


class RandomSource(WeightSource):
    """Tensors drawn by name, large enough that greedy tokens are far apart."""

    def __init__(self, spec: ModelSpec, *, has_head_norms: bool = False, seed: int = 0) -> None:
        super().__init__(spec, "random")
        self._has_head_norms = has_head_norms
        hidden, inner, head = spec.hidden_size, spec.intermediate_size, spec.head_dim
        query, key = spec.num_heads * head, spec.num_kv_heads * head
        shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (spec.vocab_size, hidden),
            "model.norm.weight": (hidden,),
        }
        if not spec.ties_embeddings:
            shapes["lm_head.weight"] = (spec.vocab_size, hidden)
        for index in range(spec.num_layers):
            layer: dict[str, tuple[int, ...]] = {
                "input_layernorm": (hidden,),
                "self_attn.q_proj": (query, hidden),
                "self_attn.k_proj": (key, hidden),
                "self_attn.v_proj": (key, hidden),
                "self_attn.o_proj": (hidden, query),
                "post_attention_layernorm": (hidden,),
                "mlp.gate_proj": (inner, hidden),
                "mlp.up_proj": (inner, hidden),
                "mlp.down_proj": (hidden, inner),
            }
            if has_head_norms:
                layer |= {"self_attn.q_norm": (head,), "self_attn.k_norm": (head,)}
            shapes |= {f"model.layers.{index}.{name}.weight": s for name, s in layer.items()}
        generator = torch.Generator().manual_seed(seed)
        self._tensors = {
            name: torch.rand(shape, generator=generator) + 0.5
            if len(shape) == 1
            else torch.randn(shape, generator=generator) * 1.5 / shape[1] ** 0.5
            for name, shape in shapes.items()
        }

    def stored_shape(self, name: str) -> tuple[int, ...] | None:
        tensor = self._tensors.get(name)
        return None if tensor is None else tuple(tensor.shape)

    def read_stored(self, name: str, rows: slice | None) -> torch.Tensor:
        tensor = self._tensors[name]
        return tensor if rows is None else tensor[rows]

    def rounded(self, dtype: torch.dtype) -> "RandomSource":
        """The same weights as `dtype` holds them."""
        copy = RandomSource.__new__(RandomSource)
        copy.__dict__ = dict(self.__dict__)
        copy._tensors = {name: t.to(dtype).float() for name, t in self._tensors.items()}
        return copy


@torch.inference_mode()
def reference_logits(source: RandomSource, token_ids: list[int]) -> torch.Tensor:
    """[len(token_ids), vocab] float32, without cache, blocks or kernels."""
    head = "model.embed_tokens.weight" if source.spec.ties_embeddings else "lm_head.weight"
    return reference_states(source, token_ids) @ source.read(head).t()


@torch.inference_mode()
def reference_states(source: RandomSource, token_ids: list[int]) -> torch.Tensor:
    """[len(token_ids), hidden] float32, after the final norm."""
    spec, read = source.spec, source.read
    hidden = read("model.embed_tokens.weight")[torch.tensor(token_ids)]
    rope = RotaryEmbedding(spec.rope, head_dim=spec.head_dim, num_positions=len(token_ids))
    cos, sin = rope.at(torch.arange(len(token_ids)))

    def norm(values: torch.Tensor, name: str) -> torch.Tensor:
        return rms_norm(values, values.shape[-1:], read(f"{name}.weight"), spec.norm_epsilon)

    for index in range(spec.num_layers):
        layer = f"model.layers.{index}"
        x = norm(hidden, f"{layer}.input_layernorm")
        heads = {
            part: (x @ read(f"{layer}.self_attn.{part}_proj.weight").t()).view(
                len(token_ids), -1, spec.head_dim
            )
            for part in "qkv"
        }
        if source.find(f"{layer}.self_attn.q_norm.weight"):
            heads |= {part: norm(heads[part], f"{layer}.self_attn.{part}_norm") for part in "qk"}
        query, key = (rotate(heads[part], cos, sin).transpose(0, 1)[None] for part in "qk")
        value = heads["v"].transpose(0, 1)[None]
        attended = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        flat = attended[0].transpose(0, 1).flatten(1)
        hidden = hidden + flat @ read(f"{layer}.self_attn.o_proj.weight").t()
        x = norm(hidden, f"{layer}.post_attention_layernorm")
        gate = silu(x @ read(f"{layer}.mlp.gate_proj.weight").t())
        up = x @ read(f"{layer}.mlp.up_proj.weight").t()
        hidden = hidden + (gate * up) @ read(f"{layer}.mlp.down_proj.weight").t()
    return norm(hidden, "model.norm")


def greedy(source: RandomSource, tokens: list[int], count: int) -> list[int]:
    """The next `count` most likely tokens."""
    tokens = list(tokens)
    for _ in range(count):
        tokens.append(int(reference_logits(source, tokens)[-1].argmax()))
    return tokens[-count:]
