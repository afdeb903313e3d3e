"""Weight matrices in the layout that the kernels read; they stay packed in memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from quire_kernels.cpu.layout import CMatrix, Format
from quire_kernels.cpu.library import Team
from quire_kernels.errors import ArgumentError, UnsupportedError

GGUF_TYPES = {
    "F32": (0, 1, 4, Format.F32),
    "F16": (1, 1, 2, Format.F16),
    "BF16": (30, 1, 2, Format.BF16),
    "Q4_0": (2, 32, 18, Format.Q4),
    "Q4_1": (3, 32, 20, Format.Q4),
    "Q5_0": (6, 32, 22, Format.Q8),
    "Q5_1": (7, 32, 24, Format.Q8M),
    "Q8_0": (8, 32, 34, Format.Q8),
    "Q4_K": (12, 256, 144, Format.Q4),
    "Q5_K": (13, 256, 176, Format.Q8M),
    "Q6_K": (14, 256, 210, Format.Q8H),
}
"""By GGML's name: its number, weights per block, bytes per block, and the format it is kept in.

Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 keep their values exactly; the K types' scales, products of two
numbers, are rounded to fp16.
"""

_DENSE_TYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
_BLOCK_COLUMNS = 32


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A weight matrix of shape [rows, cols]: outputs, inputs."""

    tiles: torch.Tensor
    """[bytes], uint8, CPU: see `src/tiles.h`."""
    rows: int
    cols: int
    format: Format

    def descriptor(self) -> CMatrix:
        """Return the C struct; it is valid as long as this object lives."""
        return CMatrix(self.tiles.data_ptr(), self.rows, self.cols, self.format)


def pack_gguf(data: torch.Tensor, type_name: str, rows: int, cols: int, team: Team) -> PackedMatrix:
    """Pack a matrix as a GGUF file stores it.

    Parameters
    ----------
    data
        [bytes], uint8, CPU, contiguous: the tensor's blocks, row by row.
    type_name
        GGML's name of the type, such as "Q4_1".
    rows, cols
        Outputs and inputs.
    team
        Threads to pack with.

    Raises
    ------
    ArgumentError
        `data` has not as many bytes as the shape says.
    UnsupportedError
        The type is none of `GGUF_TYPES`, or `cols` is no multiple of its block.
    """
    if type_name not in GGUF_TYPES:
        raise UnsupportedError(
            f"type {type_name} has no kernel; supported: {', '.join(GGUF_TYPES)}"
        )
    type_id, block, block_bytes, kept_as = GGUF_TYPES[type_name]
    if cols % block:
        raise UnsupportedError(f"{cols} columns are no multiple of {type_name}'s block of {block}")
    if data.numel() != rows * cols // block * block_bytes or data.dtype != torch.uint8:
        raise ArgumentError(
            f"data: {data.numel()} elements of {data.dtype}, expected "
            f"{rows * cols // block * block_bytes} of uint8 for {type_name} [{rows}, {cols}]"
        )
    return _pack(data, type_id, kept_as, (rows, cols), team)


def pack_tensor(weight: torch.Tensor, team: Team, *, bits: int | None = None) -> PackedMatrix:
    """Pack a dense matrix, as it is or rounded to fewer bits.

    Parameters
    ----------
    weight
        [rows, cols], float32, float16 or bfloat16, CPU.
    bits
        None keeps the dtype; 8 rounds to 8 bits around zero, 4 to 4 bits between least and
        greatest, both in groups of 32 along `cols`.

    Raises
    ------
    ArgumentError
        `weight` is no matrix on the CPU.
    UnsupportedError
        The dtype or `bits` has no kernel, or `cols` is no multiple of 32 with `bits`.
    """
    if weight.dim() != 2 or weight.device.type != "cpu":
        raise ArgumentError(f"weight: {tuple(weight.shape)} on {weight.device}, expected 2-d, cpu")
    if weight.dtype not in _DENSE_TYPES:
        choices = ", ".join(str(dtype) for dtype in _DENSE_TYPES)
        raise UnsupportedError(f"weight: dtype {weight.dtype} has no kernel; supported: {choices}")
    type_id, _, _, dense = GGUF_TYPES[_DENSE_TYPES[weight.dtype]]
    formats = {None: dense, 8: Format.Q8, 4: Format.Q4}
    if bits not in formats or (bits and weight.shape[1] % _BLOCK_COLUMNS):
        raise UnsupportedError(
            f"{bits} bits of {weight.shape[1]} columns have no kernel; supported: 8 and 4 bits "
            f"of a multiple of {_BLOCK_COLUMNS} columns"
        )
    data = weight.contiguous().view(torch.uint8)
    return _pack(data, type_id, formats[bits], (weight.shape[0], weight.shape[1]), team)


def _pack(
    data: torch.Tensor, type_id: int, kept_as: Format, shape: tuple[int, int], team: Team
) -> PackedMatrix:
    rows, cols = shape
    data = data.contiguous()
    size = team.library.quire_packed_bytes(kept_as, rows, cols)
    tiles = torch.empty(size, dtype=torch.uint8)
    refused = team.library.quire_pack(
        team.handle, type_id, data.data_ptr(), kept_as, rows, cols, tiles.data_ptr()
    )
    if refused:
        raise RuntimeError(f"bug: no way from GGML type {type_id} to {kept_as.name}")
    return PackedMatrix(tiles, rows, cols, kept_as)
