"""Reads a GGUF tensor's blocks as they are stored, and checks what can be checked of them."""

import mmap

import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from quire_engine.models.loading.gguf_file import GGUFFile, TensorEntry

_SCALE_BYTES = {
    "Q4_0": slice(0, 2),
    "Q4_1": slice(0, 4),
    "Q5_0": slice(0, 2),
    "Q5_1": slice(0, 4),
    "Q8_0": slice(0, 2),
    "Q4_K": slice(0, 4),
    "Q5_K": slice(0, 4),
    "Q6_K": slice(208, 210),
}
"""Where a block of each type has its fp16 scales; all else of it are integers."""
_FLOATS = {"F16": torch.float16, "BF16": torch.bfloat16}


def read_blocks(file: GGUFFile, entry: TensorEntry) -> tuple[torch.Tensor, str] | None:
    """Return a tensor's bytes, and GGML's name of its type.

    None where the kernels cannot take them: another type, rows that are no whole blocks, scales
    that are not finite. The reader of float32 says what is wrong with those.

    Returns
    -------
    tuple[torch.Tensor, str] | None
        [bytes], uint8, memory of its own.
    """
    try:
        kind = GGMLQuantizationType(entry.type_id)
    except ValueError:
        return None
    values, size = GGML_QUANT_SIZES[kind]
    num_bytes = torch.Size(entry.shape).numel() // values * size
    end = entry.offset + num_bytes
    is_known = kind.name in _SCALE_BYTES or kind.name in _FLOATS
    if not is_known or entry.shape[-1] % values or end > len(file.data):
        return None
    data = torch.frombuffer(bytearray(file.data[entry.offset : end]), dtype=torch.uint8)
    _forget_pages(file.data, entry.offset, end)
    return (data, kind.name) if _is_finite(data, kind.name, size) else None


def _is_finite(data: torch.Tensor, kind: str, block_bytes: int) -> bool:
    if kind in _FLOATS:
        return bool(data.view(_FLOATS[kind]).isfinite().all())
    scales = data.view(-1, block_bytes)[:, _SCALE_BYTES[kind]].contiguous().view(torch.float16)
    return bool(scales.isfinite().all())


def _forget_pages(data: mmap.mmap, start: int, end: int) -> None:
    """Take pages that were read out of this process; the system may keep them cached."""
    if hasattr(mmap, "MADV_DONTNEED"):
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        data.madvise(mmap.MADV_DONTNEED, first, end - first)
