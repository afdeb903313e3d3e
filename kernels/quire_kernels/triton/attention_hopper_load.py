"""The producer of the Hopper prefill kernel: block table -> TMA -> rings of K and V tiles.

Paged keys arrive as boxes of 16 rows x 64 columns. A ring is [stage][column panel][row][64] with
128-byte swizzle, so a box is 2 KB of contiguous shared memory at (stage, panel, row / 16), and
consumers see whole tiles. Block sizes are multiples of 16, so a box never crosses a block.

Rows of V past the last visible key are written as zeros. Their weights are zero, but the slots may
belong to another request, and 0 x NaN would carry its NaN over. A V stage therefore counts one
arrival per box.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-any-return"
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

BOX_ROWS: gl.constexpr = gl.constexpr(16)
BOX_COLUMNS: gl.constexpr = gl.constexpr(64)

# Triton 3.6 calls it thread_barrier, 3.7 barrier.
barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier


@gluon.jit
def page_row(table, position, rows_per_block, head_row, BLOCK_SIZE: gl.constexpr):
    """Row of the cache, seen as [rows, head_dim], that holds key `position` of a head."""
    block = gl.load(table + position // BLOCK_SIZE)
    return block * rows_per_block + head_row + position % BLOCK_SIZE


@gluon.jit
def load_paged_keys(desc, boxes_ring, ready, stage, tile, end, table, rows_per_block, head_row,
                    BLOCK_N: gl.constexpr, HEAD_DIM: gl.constexpr,
                    BLOCK_SIZE: gl.constexpr):  # fmt: skip
    """One tile of K. Boxes past the end repeat the last one: their logits are masked."""
    boxes: gl.constexpr = BLOCK_N // BOX_ROWS
    panels: gl.constexpr = HEAD_DIM // BOX_COLUMNS
    mbarrier.expect(ready.index(stage), BLOCK_N * HEAD_DIM * 2)
    last_box = (end - 1) // BOX_ROWS
    for box in gl.static_range(boxes):
        position = gl.minimum(tile * boxes + box, last_box) * BOX_ROWS
        row = page_row(table, position, rows_per_block, head_row, BLOCK_SIZE)
        for panel in gl.static_range(panels):
            tma.async_copy_global_to_shared(
                desc, [row, panel * BOX_COLUMNS], ready.index(stage),
                boxes_ring.index((stage * panels + panel) * boxes + box),
            )  # fmt: skip


@gluon.jit
def load_paged_values(desc, boxes_ring, ready, stage, tile, table, rows_per_block, head_row,
                      BLOCK_N: gl.constexpr, HEAD_DIM: gl.constexpr,
                      BLOCK_SIZE: gl.constexpr):  # fmt: skip
    """One tile of V, every row of which is visible."""
    boxes: gl.constexpr = BLOCK_N // BOX_ROWS
    panels: gl.constexpr = HEAD_DIM // BOX_COLUMNS
    mbarrier.expect(ready.index(stage), BLOCK_N * HEAD_DIM * 2)
    mbarrier.arrive(ready.index(stage), count=boxes * panels - 1)
    for box in gl.static_range(boxes):
        position = (tile * boxes + box) * BOX_ROWS
        row = page_row(table, position, rows_per_block, head_row, BLOCK_SIZE)
        for panel in gl.static_range(panels):
            tma.async_copy_global_to_shared(
                desc, [row, panel * BOX_COLUMNS], ready.index(stage),
                boxes_ring.index((stage * panels + panel) * boxes + box),
            )  # fmt: skip


@gluon.jit
def load_value_box(desc, base, row, num_rows, stride, column, slot, boxes_ring, ready, stage):
    """One box of V with zeros from row `num_rows` on. Arrives once on `ready`."""
    if num_rows >= BOX_ROWS:
        mbarrier.expect(ready.index(stage), BOX_ROWS * BOX_COLUMNS * 2)
        tma.async_copy_global_to_shared(
            desc, [row, column], ready.index(stage), boxes_ring.index(slot)
        )
    else:
        LAYOUT: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [1, 1], [1, 0])
        r = gl.arange(0, BOX_ROWS, layout=gl.SliceLayout(1, LAYOUT))
        c = gl.arange(0, BOX_COLUMNS, layout=gl.SliceLayout(0, LAYOUT))
        at = (row + r).to(gl.int64)[:, None] * stride + (column + c)[None, :]
        live = (r < num_rows)[:, None] & (c < BOX_COLUMNS)[None, :]
        boxes_ring.index(slot).store(gl.load(base + at, mask=live, other=0.0))
        fence_async_shared()
        barrier()
        mbarrier.arrive(ready.index(stage), count=1)


@gluon.jit
def load_paged_values_end(desc, base, boxes_ring, ready, stage, tile, end, table, rows_per_block,
                          head_row, BLOCK_N: gl.constexpr, HEAD_DIM: gl.constexpr,
                          BLOCK_SIZE: gl.constexpr):  # fmt: skip
    """One tile of V that reaches past `end`."""
    boxes: gl.constexpr = BLOCK_N // BOX_ROWS
    panels: gl.constexpr = HEAD_DIM // BOX_COLUMNS
    last_box = (end - 1) // BOX_ROWS
    for box in range(boxes):
        index = tile * boxes + box
        position = gl.minimum(index, last_box) * BOX_ROWS
        row = page_row(table, position, rows_per_block, head_row, BLOCK_SIZE)
        for panel in gl.static_range(panels):
            load_value_box(
                desc, base, row, end - index * BOX_ROWS, HEAD_DIM, panel * BOX_COLUMNS,
                (stage * panels + panel) * boxes + box, boxes_ring, ready, stage,
            )  # fmt: skip


@gluon.jit
def load_fresh(k_desc, v_desc, v_box_desc, v_base, k_ring, v_ring, v_boxes, k_ready, k_empty,
               v_ready, v_empty, step, tile, first_token, column, v_stride, end,
               BLOCK_N: gl.constexpr, HEAD_DIM: gl.constexpr, STAGES: gl.constexpr):  # fmt: skip
    """One tile of fresh K and V: one copy each, unless V reaches past the sequence's end."""
    boxes: gl.constexpr = BLOCK_N // BOX_ROWS
    panels: gl.constexpr = HEAD_DIM // BOX_COLUMNS
    stage = step % STAGES
    phase = (step // STAGES) & 1 ^ 1
    row = first_token + tile * BLOCK_N
    mbarrier.wait(k_empty.index(stage), phase)
    mbarrier.expect(k_ready.index(stage), BLOCK_N * HEAD_DIM * 2)
    tma.async_copy_global_to_shared(
        k_desc, [row, column], k_ready.index(stage), k_ring.index(stage)
    )
    mbarrier.wait(v_empty.index(stage), phase)
    if (tile + 1) * BLOCK_N <= end:
        mbarrier.expect(v_ready.index(stage), BLOCK_N * HEAD_DIM * 2)
        mbarrier.arrive(v_ready.index(stage), count=boxes * panels - 1)
        tma.async_copy_global_to_shared(
            v_desc, [row, column], v_ready.index(stage), v_ring.index(stage)
        )
    else:
        for box in range(boxes):
            for panel in gl.static_range(panels):
                load_value_box(
                    v_box_desc, v_base, row + box * BOX_ROWS,
                    end - tile * BLOCK_N - box * BOX_ROWS, v_stride, column + panel * BOX_COLUMNS,
                    (stage * panels + panel) * boxes + box, v_boxes, v_ready, stage,
                )  # fmt: skip


@gluon.jit
def load_paged(k_desc, v_desc, v_base, k_boxes, v_boxes, k_ready, k_empty, v_ready, v_empty,
               step, tile, end, table, rows_per_block, head_row,
               BLOCK_N: gl.constexpr, HEAD_DIM: gl.constexpr, BLOCK_SIZE: gl.constexpr,
               STAGES: gl.constexpr):  # fmt: skip
    """One tile of paged K and V."""
    stage = step % STAGES
    phase = (step // STAGES) & 1 ^ 1
    mbarrier.wait(k_empty.index(stage), phase)
    load_paged_keys(k_desc, k_boxes, k_ready, stage, tile, end, table, rows_per_block, head_row,
                    BLOCK_N, HEAD_DIM, BLOCK_SIZE)  # fmt: skip
    mbarrier.wait(v_empty.index(stage), phase)
    if (tile + 1) * BLOCK_N <= end:
        load_paged_values(v_desc, v_boxes, v_ready, stage, tile, table, rows_per_block, head_row,
                          BLOCK_N, HEAD_DIM, BLOCK_SIZE)  # fmt: skip
    else:
        load_paged_values_end(v_desc, v_base, v_boxes, v_ready, stage, tile, end, table,
                              rows_per_block, head_row, BLOCK_N, HEAD_DIM, BLOCK_SIZE)  # fmt: skip


@gluon.jit
def produce(k_desc, v_desc, v_base, k_new_desc, v_new_desc, v_new_box_desc, v_new_base, table,
            k_ring, v_ring, k_boxes, v_boxes, k_ready, k_empty, v_ready, v_empty,
            kv_head, first_token, query_len, rows_per_block, v_new_stride,
            num_fresh, fresh_open, num_paged, paged_open, paged_end,
            BLOCK_N: gl.constexpr, HEAD_DIM: gl.constexpr, BLOCK_SIZE: gl.constexpr,
            STAGES: gl.constexpr, FRESH: gl.constexpr):  # fmt: skip
    """Fill the rings in the order in which `consume` empties them.

    Masked tiles of either source, then open ones, each from the last tile backwards.
    """
    fresh_masked = num_fresh - fresh_open
    masked = fresh_masked + num_paged - paged_open
    for step in range(num_fresh + num_paged):
        # Fresh tiles take the steps [0, fresh_masked) and [masked, masked + fresh_open).
        from_fresh = (step < fresh_masked) | ((step >= masked) & (step < masked + fresh_open))
        fresh_before = gl.minimum(step, fresh_masked) + gl.maximum(step - masked, 0)
        fresh_before = gl.minimum(fresh_before, num_fresh)
        if FRESH and from_fresh:
            load_fresh(
                k_new_desc, v_new_desc, v_new_box_desc, v_new_base, k_ring, v_ring, v_boxes,
                k_ready, k_empty, v_ready, v_empty, step, num_fresh - 1 - fresh_before,
                first_token, kv_head * HEAD_DIM, v_new_stride, query_len, BLOCK_N, HEAD_DIM,
                STAGES,
            )  # fmt: skip
        else:
            load_paged(
                k_desc, v_desc, v_base, k_boxes, v_boxes, k_ready, k_empty, v_ready, v_empty,
                step, num_paged - 1 - (step - fresh_before), paged_end, table, rows_per_block,
                kv_head * BLOCK_SIZE, BLOCK_N, HEAD_DIM, BLOCK_SIZE, STAGES,
            )  # fmt: skip
