"""A gate-up product of many rows with its activation, for compute capability 9.0: in Gluon.

As many programs as multiprocessors take one tile of 128 rows after the other. Their warps split
into a producer and two consumers of 64 rows each:

    producer (1 warp)      TMA -> rings of rows and weights          waits on empty, fills ready
    consumers (4 warps)    acc += x W^T, SiLU-mul, TMA -> out        waits on ready, frees empty

The weights of a tile are BLOCK_N rows of the gate and the same rows of up, side by side in one
operand; its two halves become one in registers, and the product itself is never in memory.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, misc, no-any-return"
from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

ROWS: gl.constexpr = gl.constexpr(64)
CONSUMERS: gl.constexpr = gl.constexpr(2)
BAND: gl.constexpr = gl.constexpr(16)
LOG2_E: gl.constexpr = gl.constexpr(1.4426950408889634)


@gluon.jit
def place(tile, num_m, num_n):
    """Row and column of a tile: down the rows first, in bands of rows that the L2 keeps."""
    band = tile // (num_n * BAND)
    height = gl.minimum(num_m - band * BAND, BAND)
    inside = tile - band * num_n * BAND
    return band * BAND + inside % height, inside // height


@gluon.jit
def produce(x_desc, w_desc, x_ring, w_ring, ready, empty, num_m, num_n, num_k, size,
            BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr):  # fmt: skip
    """Fill the rings in the order in which `consume` empties them."""
    step = gl.to_tensor(0)
    for tile in range(gl.program_id(0), num_m * num_n, gl.num_programs(0)):
        m, n = place(tile, num_m, num_n)
        for k in range(num_k):
            stage = step % STAGES
            mbarrier.wait(empty.index(stage), (step // STAGES) & 1 ^ 1)
            mbarrier.expect(ready.index(stage), (CONSUMERS * ROWS + 2 * BLOCK_N) * BLOCK_K * 2)
            for group in gl.static_range(CONSUMERS):
                tma.async_copy_global_to_shared(
                    x_desc, [(m * CONSUMERS + group) * ROWS, k * BLOCK_K], ready.index(stage),
                    x_ring.index(stage * CONSUMERS + group),
                )  # fmt: skip
            for half in gl.static_range(2):
                tma.async_copy_global_to_shared(
                    w_desc, [half * size + n * BLOCK_N, k * BLOCK_K], ready.index(stage),
                    w_ring.index(2 * stage + half),
                )  # fmt: skip
            step += 1


@gluon.jit
def consume(group, out_desc, x_ring, w_ring, out_ring, ready, empty, num_m, num_n, num_k,
            BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr):  # fmt: skip
    """64 rows of each tile: `group` says which."""
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 2 * BLOCK_N, 16])
    swizzled: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    dtype: gl.constexpr = x_ring.dtype
    w_tiles = w_ring._reinterpret(dtype, [STAGES, 2 * BLOCK_N, BLOCK_K], swizzled)
    finished = out_ring.index(group)
    step = gl.to_tensor(0)
    for tile in range(gl.program_id(0), num_m * num_n, gl.num_programs(0)):
        m, n = place(tile, num_m, num_n)
        acc = gl.zeros((ROWS, 2 * BLOCK_N), gl.float32, LAYOUT)
        for k in range(num_k):
            stage = step % STAGES
            mbarrier.wait(ready.index(stage), (step // STAGES) & 1)
            rows = x_ring.index(stage * CONSUMERS + group)
            acc = warpgroup_mma(rows, w_tiles.index(stage).permute((1, 0)), acc, is_async=True)
            acc = warpgroup_mma_wait(1, deps=(acc,))
            if k > 0:
                mbarrier.arrive(empty.index((step - 1) % STAGES), count=1)
            step += 1
        acc = warpgroup_mma_wait(0, deps=(acc,))
        tma.store_wait(0)  # the tile before has left; all warps know by the arrival
        mbarrier.arrive(empty.index((step - 1) % STAGES), count=1)
        gate, up = gl.split(gl.permute(acc.reshape((ROWS, 2, BLOCK_N)), (0, 2, 1)))
        finished.store((gate / (1.0 + gl.exp2(gate * -LOG2_E)) * up).to(dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(
            out_desc, [(m * CONSUMERS + group) * ROWS, n * BLOCK_N], finished
        )
    tma.store_wait(0)


# A step's tokens differ from step to step: specializing on them would compile while serving.
@gluon.jit(do_not_specialize=["num_m"])
def hopper_gated_kernel(
    x_desc, w_desc, out_desc, num_m, num_n, num_k, size,
    BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
    CONSUMER_REGISTERS: gl.constexpr, PRODUCER_REGISTERS: gl.constexpr,
):  # fmt: skip
    """Grid (programs,), any number. `size` is how many outputs gate and up have each."""
    dtype: gl.constexpr = x_desc.dtype
    swizzled: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    x_ring = gl.allocate_shared_memory(dtype, [STAGES * CONSUMERS, ROWS, BLOCK_K], swizzled)
    w_ring = gl.allocate_shared_memory(dtype, [STAGES * 2, BLOCK_N, BLOCK_K], swizzled)
    out_ring = gl.allocate_shared_memory(dtype, [CONSUMERS, ROWS, BLOCK_N], swizzled)
    bars: gl.constexpr = mbarrier.MBarrierLayout()
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bars)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], bars)
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=CONSUMERS)
    gl.warp_specialize(
        [
            (consume, (
                0, out_desc, x_ring, w_ring, out_ring, ready, empty, num_m, num_n, num_k,
                BLOCK_N, BLOCK_K, STAGES,
            )),
            (consume, (
                1, out_desc, x_ring, w_ring, out_ring, ready, empty, num_m, num_n, num_k,
                BLOCK_N, BLOCK_K, STAGES,
            )),
            (produce, (
                x_desc, w_desc, x_ring, w_ring, ready, empty, num_m, num_n, num_k, size,
                BLOCK_N, BLOCK_K, STAGES,
            )),
        ],
        [4, 1],
        [CONSUMER_REGISTERS, PRODUCER_REGISTERS],
    )  # fmt: skip
