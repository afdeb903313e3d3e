"""Prefill attention for compute capability 9.0: warp specialized, in Gluon.

One program owns 128 rows (query tokens x heads of one KV head). Its warps split into a producer and
two consumers of 64 rows each:

    producer (1 warp)      table -> TMA -> K ring, V ring            waits on *_empty, fills *_ready
    consumers (4 warps)    S = Q K^T | softmax | O += P V            waits on *_ready, frees *_empty

A consumer issues Q K^T of the next tile before P V of the last, so its softmax runs under its own
matrix products, and the two consumers fill each other's gaps (the schedule of FlashAttention-3,
arXiv:2407.08608). Tiles go from the diagonal backwards: first those that need a mask, then the
open ones. Keys come from the prompt's own contiguous rows (FRESH) and from pages.

The producer half is in `attention_hopper_load`.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-any-return"
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from quire_kernels.triton.attention_hopper_load import BOX_COLUMNS, BOX_ROWS, produce

ROWS: gl.constexpr = gl.constexpr(64)
CONSUMERS: gl.constexpr = gl.constexpr(2)


@gluon.jit
def find_sequence(cu_seqlens_q, num_seqs, base, tile, BLOCK_Q: gl.constexpr):
    """As `attention_prefill.find_sequence`; a Gluon program can't call a Triton one."""
    low = gl.to_tensor(0)
    high = low + num_seqs
    while high - low > 1:
        middle = (low + high) // 2
        if (gl.load(cu_seqlens_q + middle) - base) // BLOCK_Q + middle <= tile:
            low = middle
        else:
            high = middle
    return low


@gluon.jit
def masked_logits(logits, first_position, row_limit, LAYOUT: gl.constexpr, BLOCK_N: gl.constexpr):
    """Logits of the keys after a row's last visible one become -inf."""
    column = first_position + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, LAYOUT))
    return gl.where(column[None, :] <= row_limit[:, None], logits, float("-inf"))


@gluon.jit
def softmax_step(logits, row_max, row_sum, scale_log2):
    """Weights of one tile and the factor by which older sums fade."""
    new_max = gl.maximum(row_max, gl.max(logits, 1) * scale_log2)
    weights = gl.exp2(logits * scale_log2 - new_max[:, None])
    fade = gl.exp2(row_max - new_max)
    return weights, fade, new_max, row_sum * fade + gl.sum(weights, 1)


@gluon.jit
def advance(acc, weights, row_max, row_sum, tile, query, k_ring, v_ring, k_ready, k_empty, v_ready,
            v_empty, scale_log2, first_position, row_limit,
            STAGES: gl.constexpr, BLOCK_N: gl.constexpr, S_LAYOUT: gl.constexpr,
            P_LAYOUT: gl.constexpr, MASKED: gl.constexpr):  # fmt: skip
    """Q K^T of `tile`, P V of the tile before it, and the softmax between them."""
    k_stage = tile % STAGES
    v_stage = (tile - 1) % STAGES
    mbarrier.wait(k_ready.index(k_stage), (tile // STAGES) & 1)
    nothing = gl.zeros((ROWS, BLOCK_N), gl.float32, S_LAYOUT)
    keys = k_ring.index(k_stage).permute((1, 0))
    logits = warpgroup_mma(query, keys, nothing, use_acc=False, is_async=True)
    mbarrier.wait(v_ready.index(v_stage), ((tile - 1) // STAGES) & 1)
    acc = warpgroup_mma(weights, v_ring.index(v_stage), acc, is_async=True)
    logits = warpgroup_mma_wait(1, deps=(logits,))
    mbarrier.arrive(k_empty.index(k_stage), count=1)
    if MASKED:
        logits = masked_logits(logits, first_position, row_limit, S_LAYOUT, BLOCK_N)
    fresh_weights, fade, row_max, row_sum = softmax_step(logits, row_max, row_sum, scale_log2)
    acc = warpgroup_mma_wait(0, deps=(acc,))
    mbarrier.arrive(v_empty.index(v_stage), count=1)
    acc_fade = gl.convert_layout(fade, gl.SliceLayout(1, acc.type.layout))
    acc = acc * acc_fade[:, None]
    weights = gl.convert_layout(fresh_weights.to(weights.dtype), P_LAYOUT)
    return acc, weights, row_max, row_sum


@gluon.jit
def consume(group, q, out, q_ring, k_ring, v_ring, k_ready, k_empty, v_ready, v_empty,
            first_token, query_len, token_start, kv_head, computed_len, num_fresh, fresh_open,
            num_paged, paged_open, paged_end, scale_log2, q_stride_token, q_stride_head,
            out_stride_token, out_stride_head,
            GROUP: gl.constexpr, BLOCK_Q: gl.constexpr, BLOCK_N: gl.constexpr,
            HEAD_DIM: gl.constexpr, STAGES: gl.constexpr, FRESH: gl.constexpr,
            CAUSAL: gl.constexpr):  # fmt: skip
    """Attention of 64 rows of the tile: `group` says which."""
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    O_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    P_LAYOUT: gl.constexpr = gl.DotOperandLayout(0, O_LAYOUT, 2)
    IO_LAYOUT: gl.constexpr = gl.BlockedLayout(
        [1, 8], [256 // HEAD_DIM, HEAD_DIM // 8], [4, 1], [1, 0]
    )
    io_row = group * ROWS + gl.arange(0, ROWS, layout=gl.SliceLayout(1, IO_LAYOUT))
    io_dim = gl.arange(0, HEAD_DIM, layout=gl.SliceLayout(0, IO_LAYOUT))
    io_token = token_start + io_row // GROUP
    io_head = kv_head * GROUP + io_row % GROUP
    io_live = (io_token < query_len) & (io_row < BLOCK_Q * GROUP)
    live = io_live[:, None] & (io_dim < HEAD_DIM)[None, :]
    token_row = (first_token + io_token).to(gl.int64)
    query = q_ring.index(group)
    q_at = (token_row * q_stride_token + io_head * q_stride_head)[:, None] + io_dim[None, :]
    query.store(gl.load(q + q_at, mask=live, other=0.0))
    fence_async_shared()

    row = group * ROWS + gl.arange(0, ROWS, layout=gl.SliceLayout(1, S_LAYOUT))
    token = token_start + row // GROUP
    fresh_limit = token if CAUSAL else token * 0 + query_len - 1
    if FRESH:
        paged_limit = token * 0 + paged_end - 1
    else:
        paged_limit = gl.minimum(fresh_limit + computed_len, paged_end - 1)
    num_masked = num_fresh - fresh_open + num_paged - paged_open

    # The first tile: nothing to multiply with V yet.
    mbarrier.wait(k_ready.index(0), 0)
    nothing = gl.zeros((ROWS, BLOCK_N), gl.float32, S_LAYOUT)
    logits = warpgroup_mma(
        query, k_ring.index(0).permute((1, 0)), nothing, use_acc=False, is_async=True
    )
    logits = warpgroup_mma_wait(0, deps=(logits,))
    mbarrier.arrive(k_empty.index(0), count=1)
    if FRESH:
        logits = masked_logits(logits, (num_fresh - 1) * BLOCK_N, fresh_limit, S_LAYOUT, BLOCK_N)
    else:
        logits = masked_logits(logits, (num_paged - 1) * BLOCK_N, paged_limit, S_LAYOUT, BLOCK_N)
    row_max = gl.full((ROWS,), -1.0e30, gl.float32, gl.SliceLayout(1, S_LAYOUT))
    row_sum = gl.zeros((ROWS,), gl.float32, gl.SliceLayout(1, S_LAYOUT))
    wide, _, row_max, row_sum = softmax_step(logits, row_max, row_sum, scale_log2)
    weights = gl.convert_layout(wide.to(q_ring.dtype), P_LAYOUT)
    acc = gl.zeros((ROWS, HEAD_DIM), gl.float32, O_LAYOUT)

    for tile in range(1, num_masked):
        from_fresh = tile < num_fresh - fresh_open
        index = num_fresh - 1 - tile
        if not from_fresh:
            index = num_paged - 1 - (tile - (num_fresh - fresh_open))
        limit = gl.where(from_fresh, fresh_limit, paged_limit)
        acc, weights, row_max, row_sum = advance(
            acc, weights, row_max, row_sum, tile, query, k_ring, v_ring, k_ready, k_empty,
            v_ready, v_empty, scale_log2, index * BLOCK_N, limit, STAGES, BLOCK_N, S_LAYOUT,
            P_LAYOUT, True,
        )  # fmt: skip
    for tile in range(num_masked, num_fresh + num_paged):
        acc, weights, row_max, row_sum = advance(
            acc, weights, row_max, row_sum, tile, query, k_ring, v_ring, k_ready, k_empty,
            v_ready, v_empty, scale_log2, 0, fresh_limit, STAGES, BLOCK_N, S_LAYOUT,
            P_LAYOUT, False,
        )  # fmt: skip

    last = num_fresh + num_paged - 1
    mbarrier.wait(v_ready.index(last % STAGES), (last // STAGES) & 1)
    acc = warpgroup_mma(weights, v_ring.index(last % STAGES), acc, is_async=True)
    acc = warpgroup_mma_wait(0, deps=(acc,))
    whole = gl.convert_layout(row_sum, gl.SliceLayout(1, O_LAYOUT))
    # Q is no longer needed: its place turns the accumulator into rows of 16-byte stores.
    query.store((acc / whole[:, None]).to(q_ring.dtype))
    out_at = (token_row * out_stride_token + io_head * out_stride_head)[:, None] + io_dim[None, :]
    gl.store(out + out_at, query.load(IO_LAYOUT), mask=live)


# Batches differ in these from step to step: specializing on them would compile while serving.
@gluon.jit(
    do_not_specialize=["num_seqs"],
    do_not_specialize_on_alignment=["cu_seqlens_q", "context_lens", "block_table"],
)
def hopper_prefill_kernel(
    q, out, k_desc, v_desc, v_base, k_new_desc, v_new_desc, v_new_box_desc, v_new_base,
    cu_seqlens_q, context_lens, block_table, num_seqs, scale_log2,
    q_stride_token, q_stride_head, out_stride_token, out_stride_head,
    v_new_stride, rows_per_block, table_stride,
    GROUP: gl.constexpr, BLOCK_Q: gl.constexpr, BLOCK_N: gl.constexpr, HEAD_DIM: gl.constexpr,
    BLOCK_SIZE: gl.constexpr, STAGES: gl.constexpr, FRESH: gl.constexpr, CAUSAL: gl.constexpr,
    CONSUMER_REGISTERS: gl.constexpr, PRODUCER_REGISTERS: gl.constexpr,
):  # fmt: skip
    """One query tile of one KV head. Grid (num_kv_heads, upper bound of tiles), longest first."""
    kv_head = gl.program_id(0)
    tile = gl.num_programs(1) - 1 - gl.program_id(1)
    base = gl.load(cu_seqlens_q)
    seq = find_sequence(cu_seqlens_q, num_seqs, base, tile, BLOCK_Q)
    first_token = gl.load(cu_seqlens_q + seq)
    query_len = gl.load(cu_seqlens_q + seq + 1) - first_token
    token_start = (tile - (first_token - base) // BLOCK_Q - seq) * BLOCK_Q
    if token_start >= query_len:
        return
    context_len = gl.load(context_lens + seq)
    computed_len = context_len - query_len
    token_end = gl.minimum(token_start + BLOCK_Q, query_len)
    end = computed_len + token_end if CAUSAL else context_len
    open_end = computed_len + token_start + 1 if CAUSAL else context_len
    if FRESH:
        paged_end = computed_len
        num_fresh = (end - computed_len + BLOCK_N - 1) // BLOCK_N
        fresh_open = gl.minimum((open_end - computed_len) // BLOCK_N, num_fresh - 1)
        num_paged = (paged_end + BLOCK_N - 1) // BLOCK_N
        paged_open = paged_end // BLOCK_N
    else:
        paged_end = end
        num_fresh = gl.to_tensor(0)
        fresh_open = gl.to_tensor(0)
        num_paged = (paged_end + BLOCK_N - 1) // BLOCK_N
        paged_open = gl.minimum(open_end // BLOCK_N, num_paged - 1)

    dtype: gl.constexpr = q.dtype.element_ty
    boxes: gl.constexpr = BLOCK_N // BOX_ROWS
    panels: gl.constexpr = HEAD_DIM // BOX_COLUMNS
    swizzled: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    q_ring = gl.allocate_shared_memory(dtype, [CONSUMERS, ROWS, HEAD_DIM], swizzled)
    k_ring = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, HEAD_DIM], swizzled)
    v_ring = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, HEAD_DIM], swizzled)
    box_shape: gl.constexpr = [STAGES * panels * boxes, BOX_ROWS, BOX_COLUMNS]
    k_boxes = k_ring._reinterpret(dtype, box_shape, swizzled)
    v_boxes = v_ring._reinterpret(dtype, box_shape, swizzled)
    bars: gl.constexpr = mbarrier.MBarrierLayout()
    k_ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bars)
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bars)
    v_ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bars)
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bars)
    for stage in gl.static_range(STAGES):
        mbarrier.init(k_ready.index(stage), count=1)
        mbarrier.init(v_ready.index(stage), count=boxes * panels)
        mbarrier.init(k_empty.index(stage), count=CONSUMERS)
        mbarrier.init(v_empty.index(stage), count=CONSUMERS)
    table = block_table + seq.to(gl.int64) * table_stride
    gl.warp_specialize(
        [
            (consume, (
                0, q, out, q_ring, k_ring, v_ring, k_ready, k_empty, v_ready, v_empty,
                first_token, query_len, token_start, kv_head, computed_len, num_fresh, fresh_open,
                num_paged, paged_open, paged_end, scale_log2, q_stride_token, q_stride_head,
                out_stride_token, out_stride_head,
                GROUP, BLOCK_Q, BLOCK_N, HEAD_DIM, STAGES, FRESH, CAUSAL,
            )),
            (consume, (
                1, q, out, q_ring, k_ring, v_ring, k_ready, k_empty, v_ready, v_empty,
                first_token, query_len, token_start, kv_head, computed_len, num_fresh, fresh_open,
                num_paged, paged_open, paged_end, scale_log2, q_stride_token, q_stride_head,
                out_stride_token, out_stride_head,
                GROUP, BLOCK_Q, BLOCK_N, HEAD_DIM, STAGES, FRESH, CAUSAL,
            )),
            (produce, (
                k_desc, v_desc, v_base, k_new_desc, v_new_desc, v_new_box_desc, v_new_base, table,
                k_ring, v_ring, k_boxes, v_boxes, k_ready, k_empty, v_ready, v_empty,
                kv_head, first_token, query_len, rows_per_block, v_new_stride,
                num_fresh, fresh_open, num_paged, paged_open, paged_end,
                BLOCK_N, HEAD_DIM, BLOCK_SIZE, STAGES, FRESH,
            )),
        ],
        [4, 1],
        [CONSUMER_REGISTERS, PRODUCER_REGISTERS],
    )  # fmt: skip
