"""Single kernels, as tests, benchmarks and tools call them; a decoder's step fuses them."""

from __future__ import annotations

from ctypes import byref

import torch

from quire_kernels.cpu.cache import describe_cache
from quire_kernels.cpu.decoder import StepInputs
from quire_kernels.cpu.library import Team
from quire_kernels.cpu.packing import PackedMatrix
from quire_kernels.errors import ArgumentError


def matmul(x: torch.Tensor, matrix: PackedMatrix, team: Team) -> torch.Tensor:
    """Multiply rows by a packed matrix: x @ matrix.T.

    Against a quantized matrix, `x` is rounded to 16 bits in groups of 32 columns first, and the
    integer products are exact.

    Parameters
    ----------
    x
        [num_tokens, cols], float32, CPU, contiguous.

    Returns
    -------
    torch.Tensor
        [num_tokens, rows], float32.
    """
    _check_rows("x", x, matrix.cols)
    out = torch.empty(x.shape[0], matrix.rows)
    struct = matrix.descriptor()
    team.library.quire_matmul(team.handle, byref(struct), x.data_ptr(), x.shape[0], out.data_ptr())
    return out


def embed(ids: torch.Tensor, matrix: PackedMatrix, team: Team) -> torch.Tensor:
    """Return rows of a packed matrix as float32: [len(ids), cols].

    Parameters
    ----------
    ids
        [num_tokens], int32, CPU, each below `matrix.rows`.
    """
    if ids.dtype != torch.int32 or ids.dim() != 1:
        raise ArgumentError(f"ids: {tuple(ids.shape)} of {ids.dtype}, expected 1-d int32")
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < matrix.rows:
        raise ArgumentError(f"ids: must be in [0, {matrix.rows})")
    ids = ids.contiguous()
    out = torch.empty(ids.numel(), matrix.cols)
    struct = matrix.descriptor()
    team.library.quire_embed(byref(struct), ids.data_ptr(), ids.numel(), out.data_ptr())
    return out


def rms_norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float, team: Team) -> torch.Tensor:
    """Normalize rows: x / sqrt(mean(x^2) + epsilon) * weight.

    Parameters
    ----------
    x
        [num_rows, size], float32, CPU, contiguous.
    weight
        [size], float32, CPU.
    """
    _check_rows("x", x, weight.numel())
    out = torch.empty_like(x)
    team.library.quire_rms_norm(
        x.data_ptr(), weight.data_ptr(), epsilon, x.shape[0], x.shape[1], out.data_ptr()
    )
    return out


def paged_attention(
    query: torch.Tensor,
    kv_cache: torch.Tensor,
    layer: int,
    inputs: StepInputs,
    team: Team,
    *,
    scale: float | None = None,
    softcap: float = 0.0,
    window: int = 0,
) -> torch.Tensor:
    """Attend chunks of queries to their sequences' cached keys, causally.

    Parameters
    ----------
    query
        [num_tokens, num_heads, head_dim], float32, CPU, contiguous.
    kv_cache
        [num_blocks, num_layers, 2, num_kv_heads, block_size, head_dim]; the chunks' own keys are
        in it already.
    layer
        Which of the cache's layers.
    inputs
        Rows, starts, lengths and block tables; token ids are not used.
    scale
        Of query times key; None: head_dim ** -0.5.
    softcap, window
        See `DecoderShape.attention_softcap` and `LayerWeights.window`.

    Returns
    -------
    torch.Tensor
        The shape of `query`, float32.
    """
    inputs.check()
    num_tokens, num_heads, head_dim = query.shape
    _check_rows("query", query.flatten(1), num_heads * head_dim)
    if num_tokens != int(inputs.num_tokens.sum()) or not 0 <= layer < kv_cache.shape[1]:
        raise ArgumentError(f"query: {num_tokens} tokens, or layer {layer}, do not fit the rest")
    cache = describe_cache(kv_cache, (None, 2, None, None, head_dim))
    batch = inputs.descriptor()
    out = torch.empty_like(query)
    team.library.quire_attention(
        team.handle,
        byref(cache),
        layer,
        num_heads,
        head_dim**-0.5 if scale is None else scale,
        softcap,
        window,
        byref(batch),
        query.data_ptr(),
        out.data_ptr(),
    )
    return out


def _check_rows(name: str, x: torch.Tensor, cols: int) -> None:
    is_plain = x.dtype == torch.float32 and x.is_contiguous() and x.device.type == "cpu"
    if x.dim() != 2 or x.shape[1] != cols or not is_plain:
        raise ArgumentError(
            f"{name}: {tuple(x.shape)} of {x.dtype} on {x.device}, expected [any, {cols}] of "
            "float32 on cpu, contiguous"
        )
