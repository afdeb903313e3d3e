import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire_engine.errors import CapacityError, ConfigError
from quire_engine.profiles.capacity import count_kv_blocks, working_bytes
from quire_engine.profiles.gpus import find_gpu
from quire_engine.profiles.shapes import find_shape

H100, L4, T4 = find_gpu("h100"), find_gpu("l4"), find_gpu("t4")
LLAMA = find_shape("llama3-8b")


def test_blocks_weights_and_working_memory_fill_the_share_and_no_more() -> None:
    working = working_bytes(LLAMA, max_num_batched_tokens=2048, max_num_seqs=256)
    block_bytes = LLAMA.kv_bytes_per_block(16)
    used = LLAMA.weight_bytes() + working + count_kv_blocks(H100, LLAMA) * block_bytes
    share = int(H100.memory_bytes * 0.9)
    assert share - block_bytes < used <= share


def test_an_8b_model_on_an_h100_holds_about_as_much_as_elsewhere() -> None:
    # other engines report some 450,000 tokens for this pair at 0.9
    assert count_kv_blocks(H100, LLAMA) * 16 == pytest.approx(450_000, rel=0.05)


def test_what_does_not_fit_says_what_is_short() -> None:
    with pytest.raises(CapacityError, match=r"llama3-8b does not fit t4: weights take 15\.0 GiB"):
        count_kv_blocks(T4, LLAMA)


def test_quantizing_makes_it_fit() -> None:
    assert count_kv_blocks(T4, LLAMA, quantization="int4") > 1000


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, float("nan")])
def test_an_impossible_share_of_memory_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match="gpu_memory_utilization"):
        count_kv_blocks(H100, LLAMA, gpu_memory_utilization=share)


@given(
    share=st.floats(0.85, 1.0),
    larger_share=st.floats(0.85, 1.0),
    num_seqs=st.integers(1, 512),
    num_tokens=st.integers(1, 16384),
)
def test_more_memory_and_smaller_steps_never_hold_less(
    share: float, larger_share: float, num_seqs: int, num_tokens: int
) -> None:
    share, larger_share = sorted((share, larger_share))
    blocks = count_kv_blocks(
        L4,
        LLAMA,
        gpu_memory_utilization=share,
        max_num_batched_tokens=num_tokens,
        max_num_seqs=num_seqs,
    )
    roomier = count_kv_blocks(
        L4,
        LLAMA,
        gpu_memory_utilization=larger_share,
        max_num_batched_tokens=num_tokens,
        max_num_seqs=max(num_seqs // 2, 1),
    )
    assert roomier >= blocks
