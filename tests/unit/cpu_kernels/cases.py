"""Builders of random weights, caches and steps."""

from __future__ import annotations

from dataclasses import dataclass

import gguf
import numpy as np
import torch

from quire_kernels.cpu import PackedMatrix, StepInputs, Team, pack_gguf, pack_tensor
from quire_kernels.cpu.packing import GGUF_TYPES

POISON = float("nan")


def random_gguf(name: str, rows: int, cols: int, seed: int = 0) -> torch.Tensor:
    """Random blocks of a type, with finite scales: [bytes], uint8."""
    _, block, block_bytes, _ = GGUF_TYPES[name]
    generator = np.random.default_rng(seed)
    data = generator.integers(0, 256, (rows * cols // block, block_bytes), dtype=np.uint8)
    for offset in _scale_offsets(name):
        scales = generator.uniform(0.001, 0.02, len(data)).astype(np.float16)
        data[:, offset : offset + 2] = scales[:, None].view(np.uint8)
    return torch.from_numpy(data.reshape(-1))


def _scale_offsets(name: str) -> tuple[int, ...]:
    if name == "Q6_K":
        return (208,)
    return (0, 2) if name in ("Q4_1", "Q5_1", "Q4_K", "Q5_K") else (0,)


def dequantize(data: torch.Tensor, name: str, rows: int) -> torch.Tensor:
    """What the gguf package makes of blocks: [rows, cols], float32."""
    values = gguf.dequantize(data.numpy().reshape(rows, -1), gguf.GGMLQuantizationType[name])
    return torch.from_numpy(np.array(values, dtype=np.float32))


@dataclass(frozen=True)
class Weight:
    """A matrix, packed and plain."""

    packed: PackedMatrix
    plain: torch.Tensor


def make_weight(name: str, rows: int, cols: int, team: Team, seed: int = 0) -> Weight:
    """A random matrix of a GGUF type, or of a dtype that torch has."""
    dtypes = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
    if name in dtypes:
        generator = torch.Generator().manual_seed(seed)
        dense = (torch.randn(rows, cols, generator=generator) / cols**0.5).to(dtypes[name])
        return Weight(pack_tensor(dense, team), dense.float())
    data = random_gguf(name, rows, cols, seed)
    return Weight(pack_gguf(data, name, rows, cols, team), dequantize(data, name, rows))


def make_inputs(
    chunks: list[tuple[int, int]], *, block_size: int, num_blocks: int, seed: int = 0
) -> StepInputs:
    """Chunks of (start, number of tokens), each of its own row; blocks in random order.

    Block 0 is in no table, and rows lie in reverse order.
    """
    generator = torch.Generator().manual_seed(seed)
    longest = max(start + count for start, count in chunks)
    width = -(-longest // block_size) + 1
    order = torch.randperm(num_blocks - 1, generator=generator)[: len(chunks) * width] + 1
    starts, counts = zip(*chunks, strict=True)
    total = sum(counts)
    return StepInputs(
        rows=torch.arange(len(chunks), dtype=torch.int32).flip(0),
        starts=torch.tensor(starts, dtype=torch.int32),
        num_tokens=torch.tensor(counts, dtype=torch.int32),
        samples=torch.ones(len(chunks), dtype=torch.bool),
        token_ids=torch.randint(0, 50, (total,), generator=generator, dtype=torch.int32),
        block_tables=order.view(len(chunks), width).int().contiguous(),
    )


def make_cache(
    inputs: StepInputs, shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0
) -> torch.Tensor:
    """KV memory whose slots hold random numbers where a sequence has tokens, and NaN elsewhere."""
    cache = torch.full(shape, POISON, dtype=dtype)
    generator = torch.Generator().manual_seed(seed)
    ends = (inputs.starts + inputs.num_tokens).tolist()
    for row, end in zip(inputs.rows.tolist(), ends, strict=True):
        for position in range(end):
            block = int(inputs.block_tables[row, position // shape[4]])
            slot = cache[block, :, :, :, position % shape[4]]
            slot.copy_(torch.randn(slot.shape, generator=generator))
    return cache
