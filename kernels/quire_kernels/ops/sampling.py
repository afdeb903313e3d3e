"""Sampling on the device: penalties, temperature, top-k, top-p, min-p, keyed randomness."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from quire_kernels.ops.attention_decode import next_power_of_two
from quire_kernels.ops.checks import (
    check_device,
    check_integers,
    check_last_contiguous,
    check_shape,
    check_supported,
)
from quire_kernels.ops.device import device_of
from quire_kernels.ops.launching import launch as launch_kernel
from quire_kernels.ops.norm import DTYPES
from quire_kernels.triton.sampling import join_kernel, scan_kernel
from quire_kernels.triton.sampling_list import choose_kernel, gather_kernel
from quire_kernels.triton.sampling_search import search_kernel

GROUP_TOKENS = 4096
SEGMENTS_PER_GROUP = 32
FIXED_GROUPS = 8
"""Groups per program where sums must not depend on the number of rows."""
LISTED_PER_GROUP = 64
"""Listed tokens per 4,096: a row whose list overflows is searched over the vocabulary."""

PROMPT_FLAG = 1 << 30
"""Bit of `token_counts` that marks a token of the prompt; the bits below count generated ones."""


@dataclass(frozen=True, eq=False)
class SamplingParameters:
    """One value per row, on the device."""

    temperature: torch.Tensor
    """[num_rows] fp32; below 1e-5 the row is greedy, and truncation and noise are skipped."""

    top_k: torch.Tensor
    """[num_rows] int32; 0 keeps the whole vocabulary. Ties with the k-th logit are kept."""

    top_p: torch.Tensor
    """[num_rows] fp32; 1 keeps all. A token stays if more likely ones hold less than top_p."""

    min_p: torch.Tensor
    """[num_rows] fp32; 0 keeps all. A token stays if its probability is min_p of the highest."""

    seeds: torch.Tensor
    """[num_rows] int64: with `positions`, the key of a row's random numbers."""

    positions: torch.Tensor
    """[num_rows] int32: position of the token to be sampled."""

    truncates: bool = True
    """False promises that no row uses top-k, top-p or min-p: two kernels instead of five."""

    fixed: bool = False
    """Sums of probabilities have the same bits however many rows there are."""


@dataclass(frozen=True, eq=False)
class Penalties:
    """Repetition, frequency and presence penalties, and the counts they look at."""

    repetition: torch.Tensor
    """[num_rows] fp32; 1 is off."""

    frequency: torch.Tensor
    """[num_rows] fp32; 0 is off."""

    presence: torch.Tensor
    """[num_rows] fp32; 0 is off."""

    token_counts: torch.Tensor
    """[num_count_rows, vocab_size] int32: times generated, plus PROMPT_FLAG if in the prompt."""

    count_rows: torch.Tensor
    """[num_rows] int32: the row of `token_counts` of each row of logits."""


def sample(
    logits: torch.Tensor,
    parameters: SamplingParameters,
    *,
    penalties: Penalties | None = None,
    allowed: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """One token per row, a function of the logits, the parameters and (seed, position) alone.

    Order: allowed tokens, penalties, greedy or temperature, min-p, top-k, top-p, sample. No sort,
    no host synchronization; safe to capture in a CUDA graph. A row with a NaN or a positive
    infinity among its allowed tokens, or without any finite logit there, gives -1.

    Parameters
    ----------
    logits
        [num_rows, vocab_size] bf16, fp16 or fp32, device; last dimension contiguous. Not changed.
    parameters
        Per-row tensors.
    penalties
        Absent: none for any row.
    allowed
        [num_rows, ceil(vocab_size / 32)] int32, device: bit t % 32 of word t // 32 allows token t.
    out
        [num_rows] int32; allocated when absent.

    Returns
    -------
    torch.Tensor
        [num_rows] int32.

    Raises
    ------
    ArgumentError, UnsupportedError
        Shapes, strides or dtypes that don't fit.
    """
    _check(logits, parameters, penalties, allowed)
    device_of(logits)
    num_rows = logits.shape[0]
    out = torch.empty(num_rows, dtype=torch.int32, device=logits.device) if out is None else out
    check_integers("out", out)
    check_shape("out", out, (num_rows,))
    if num_rows == 0:
        return out
    _launch(logits, parameters, penalties, allowed, out)
    return out


def _launch(
    logits: torch.Tensor,
    knobs: SamplingParameters,
    penalties: Penalties | None,
    allowed: torch.Tensor | None,
    out: torch.Tensor,
) -> None:
    num_rows, vocab_size = logits.shape
    space = Workspace(num_rows, vocab_size, logits.device, lists=knobs.truncates, fixed=knobs.fixed)
    tuned = _penalty_tensors(penalties, knobs)
    mask = allowed if allowed is not None else knobs.top_k
    strides = (
        logits.stride(0),
        penalties.token_counts.stride(0) if penalties is not None else 0,
        allowed.stride(0) if allowed is not None else 0,
    )
    flags = {"PENALTIES": penalties is not None, "ALLOWED": allowed is not None}
    grid = (space.num_chunks, num_rows)
    launch_kernel(
        scan_kernel, grid,
        logits, knobs.temperature, knobs.seeds, knobs.positions, *tuned, mask,
        space.best, space.token, space.top, space.low, space.mass, space.segment_max,
        vocab_size, space.num_chunks, *strides, space.num_segments,
        GROUPS=space.groups, TRUNCATE=knobs.truncates, dependent=True, num_warps=8, **flags,
    )  # fmt: skip
    block_chunks = next_power_of_two(space.num_chunks)
    launch_kernel(
        join_kernel, (num_rows,),
        knobs.temperature, knobs.top_k, knobs.top_p, knobs.min_p, space.best, space.token,
        space.segment_max, space.floors, space.settled, out,
        space.num_chunks, space.num_segments, vocab_size, space.num_segments,
        BLOCK_CHUNKS=block_chunks, BLOCK_SEGMENTS=next_power_of_two(space.num_segments),
        TRUNCATE=knobs.truncates, dependent=True, num_warps=4 if knobs.truncates else 1,
    )  # fmt: skip
    if not knobs.truncates:
        return
    launch_kernel(
        gather_kernel, grid,
        logits, knobs.temperature, *tuned, mask, space.top, space.floors, space.listed,
        space.list_logit, space.list_token, vocab_size, space.num_chunks, *strides,
        GROUPS=space.groups, CAPACITY=space.capacity, num_warps=4, **flags,
    )  # fmt: skip
    launch_kernel(
        choose_kernel, (num_rows,),
        knobs.top_k, knobs.top_p, knobs.min_p, knobs.seeds, knobs.positions, space.top,
        space.mass, space.floors, space.listed, space.list_logit, space.list_token, space.settled,
        out, vocab_size, space.num_chunks,
        BLOCK_CHUNKS=block_chunks, CAPACITY=space.capacity,
        BLOCK_LIST=next_power_of_two(space.num_chunks * space.capacity), num_warps=8,
    )  # fmt: skip
    launch_kernel(
        search_kernel, (num_rows,),
        logits, knobs.temperature, knobs.top_k, knobs.top_p, knobs.min_p, knobs.seeds,
        knobs.positions, *tuned, mask, space.top, space.low, space.mass, space.settled, out,
        vocab_size, space.num_chunks, *strides,
        BLOCK_CHUNKS=block_chunks, num_warps=16, **flags,
    )  # fmt: skip


def _penalty_tensors(
    penalties: Penalties | None, knobs: SamplingParameters
) -> tuple[torch.Tensor, ...]:
    """What the kernels take in the penalties' places; never read when there are none."""
    if penalties is None:
        return (knobs.temperature,) * 3 + (knobs.top_k,) * 2
    return (
        penalties.repetition, penalties.frequency, penalties.presence, penalties.token_counts,
        penalties.count_rows,
    )  # fmt: skip


class Workspace:
    """What the kernels hand to each other: [num_rows, num_chunks] and smaller, on the device."""

    def __init__(
        self, num_rows: int, vocab_size: int, device: torch.device, *, lists: bool, fixed: bool
    ) -> None:
        self.groups = FIXED_GROUPS if fixed else groups_per_chunk(num_rows, vocab_size)
        self.num_chunks = -(-vocab_size // (GROUP_TOKENS * self.groups))
        self.num_segments = SEGMENTS_PER_GROUP * self.groups * self.num_chunks
        self.capacity = LISTED_PER_GROUP * self.groups
        # Each part starts on 16 bytes, or kernels would be compiled again for odd addresses.
        size = -(-num_rows * self.num_chunks // 4) * 4
        found = torch.empty((5, size), device=device)
        self.best, self.top, self.low, self.mass = found[0], found[1], found[2], found[3]
        self.token = found[4].view(torch.int32)
        rows = num_rows if lists else 0
        self.segment_max = torch.empty((rows, self.num_segments), device=device)
        self.floors = torch.empty(rows, device=device)
        self.settled = torch.empty(rows, dtype=torch.int32, device=device)
        self.listed = torch.empty((rows, self.num_chunks), dtype=torch.int32, device=device)
        lists_shape = (rows, self.num_chunks, self.capacity)
        self.list_logit = torch.empty(lists_shape, device=device)
        self.list_token = torch.empty(lists_shape, dtype=torch.int32, device=device)


def groups_per_chunk(num_rows: int, vocab_size: int) -> int:
    """Groups of 4,096 tokens per program: one for few rows, up to 8 once rows fill the device.

    A power of two, so that few variants of the kernels exist.
    """
    groups_per_row = -(-vocab_size // GROUP_TOKENS)
    wanted = max(1, min(8, groups_per_row * num_rows // 1024))
    return 1 << (wanted.bit_length() - 1)


def _check(
    logits: torch.Tensor,
    parameters: SamplingParameters,
    penalties: Penalties | None,
    allowed: torch.Tensor | None,
) -> None:
    check_supported("logits: dtype", logits.dtype, DTYPES)
    check_shape("logits", logits, (None, None))
    check_last_contiguous("logits", logits)
    rows = (logits.shape[0],)
    wanted = [
        ("temperature", parameters.temperature, torch.float32),
        ("top_k", parameters.top_k, torch.int32),
        ("top_p", parameters.top_p, torch.float32),
        ("min_p", parameters.min_p, torch.float32),
        ("seeds", parameters.seeds, torch.int64),
        ("positions", parameters.positions, torch.int32),
    ]
    if penalties is not None:
        wanted += [
            ("repetition", penalties.repetition, torch.float32),
            ("frequency", penalties.frequency, torch.float32),
            ("presence", penalties.presence, torch.float32),
            ("count_rows", penalties.count_rows, torch.int32),
        ]
        check_integers("token_counts", penalties.token_counts)
        check_shape("token_counts", penalties.token_counts, (None, logits.shape[1]))
        check_device("token_counts", penalties.token_counts, logits)
    for name, tensor, dtype in wanted:
        check_integers(name, tensor, dtype)
        check_shape(name, tensor, rows)
        check_device(name, tensor, logits)
    if allowed is not None:
        check_integers("allowed", allowed)
        check_shape("allowed", allowed, (logits.shape[0], -(-logits.shape[1] // 32)))
        check_device("allowed", allowed, logits)
