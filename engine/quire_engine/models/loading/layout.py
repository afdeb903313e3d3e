"""Where a decoder's tensor lies in a model's files: under which name, in which rows, in what order.

Query, key and value are one matrix in Phi-3's files, as are gate and up. Rows of query and key come
out so that the two values that rotate together are half a head apart, those that do not rotate
behind the others:

    a head of 8 of which 4 rotate    file   0 1 2 3 | 4 5 6 7       pairs (0 2) (1 3)
                                     here   0 1 4 5 | 2 3 6 7       pairs (0 2) (1 3) (4 6) (5 7)

Scores of attention do not change when query and key change the order of their values alike.
"""

from dataclasses import dataclass

import torch

from quire_engine.models.config import ModelSpec


@dataclass(frozen=True, slots=True)
class Place:
    """Where one of a decoder's tensors lies."""

    name: str
    """Of the tensor in the files, as Hugging Face names it."""
    rows: slice | None = None
    """Which of its rows; None: all."""
    num_stored_rows: int | None = None
    """How many rows it must have, where not all are this tensor's."""
    order: torch.Tensor | None = None
    """[rows], int64: which of these rows comes at which place; None: as they are."""

    def arrange(self, rows: torch.Tensor) -> torch.Tensor:
        """Bring this place's rows into order."""
        return rows if self.order is None else rows[self.order]


def find_place(spec: ModelSpec, name: str) -> Place:
    """Return where a decoder's tensor lies.

    Parameters
    ----------
    name
        As `quire_engine.models.tensors` names it.
    """
    prefix, _, rest = name.rpartition("layers.")
    layer, _, member = rest.partition(".")
    module, _, kind = member.rpartition(".")
    part = module.rpartition(".")[2]
    order = _row_order(spec, part)
    fused = _fused_parts(spec) if spec.is_fused and prefix else {}
    for whole, sizes in fused.items():
        if part in sizes:
            first = sum(list(sizes.values())[: list(sizes).index(part)])
            rows = slice(first, first + sizes[part])
            stored = f"{prefix}layers.{layer}.{whole}.{kind}"
            return Place(stored, rows, sum(sizes.values()), order)
    return Place(name, order=order)


def _fused_parts(spec: ModelSpec) -> dict[str, dict[str, int]]:
    """Return the rows of each part of each fused matrix."""
    query, key = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    inner = spec.intermediate_size
    return {
        "self_attn.qkv_proj": {"q_proj": query, "k_proj": key, "v_proj": key},
        "mlp.gate_up_proj": {"gate_proj": inner, "up_proj": inner},
    }


def _row_order(spec: ModelSpec, part: str) -> torch.Tensor | None:
    counts = {
        "q_proj": spec.num_heads,
        "k_proj": spec.num_kv_heads,
        "q_norm": 1,
        "k_norm": 1,
    }
    if part not in counts or not (spec.interleaves_rotary_rows or spec.rope.rotary_dim):
        return None
    dim, rotary = spec.head_dim, spec.rope.rotary_dim or spec.head_dim
    head = torch.arange(dim)
    turning, still = head[:rotary], head[rotary:]
    if spec.interleaves_rotary_rows:
        # 0 h 1 h+1 ... as llama.cpp's converter leaves them
        turning = turning.view(-1, 2).t().flatten()
    first, second = turning.chunk(2)
    half = len(still) // 2
    head = torch.cat((first, still[:half], second, still[half:]))
    starts = torch.arange(counts[part])[:, None] * dim
    return (starts + head).flatten()
