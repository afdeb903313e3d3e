"""How decodes are grouped, and what padding may read."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quire_engine.models.attention import PagedAttention
from quire_engine.models.attention_plan import (
    MOST_GROUP_TOKENS,
    CacheLayout,
    group_decodes,
    plan_attention,
)

LAYOUT = CacheLayout(num_layers=2, num_kv_heads=2, block_size=16, head_dim=8)


@settings(deadline=None)
@given(st.lists(st.integers(0, 40000), max_size=60))
def test_groups_hold_every_decode_once_and_little_padding(starts: list[int]) -> None:
    groups = group_decodes(starts)
    assert sorted(index for group in groups for index in group) == list(range(len(starts)))
    for group in groups:
        lengths = [starts[index] + 1 for index in group]
        assert lengths[0] == max(lengths) <= 2 * min(lengths)
        assert len(group) == 1 or len(group) * max(lengths) <= MOST_GROUP_TOKENS


def test_writes_only_the_tokens_of_the_step() -> None:
    cache = torch.zeros(LAYOUT.shape(5))
    plan = plan_attention(LAYOUT, torch.tensor([[3, 1], [4, 0]]), [16, 2], [1, 3], num_decodes=1)
    key = torch.randn(4, 2, 8)
    PagedAttention(cache, LAYOUT).attend(1, plan, torch.randn(4, 4, 8), key, key + 1)
    written = torch.zeros_like(cache)
    written[1, 1, 0, :, 0] = key[0]
    written[1, 1, 1, :, 0] = key[0] + 1
    written[4, 1, 0, :, 2:5] = key[1:].transpose(0, 1)
    written[4, 1, 1, :, 2:5] = key[1:].transpose(0, 1) + 1
    assert torch.equal(cache, written)


def test_padding_has_no_weight() -> None:
    query, key = torch.randn(2, 4, 8), torch.randn(2, 2, 8)
    tables = torch.tensor([[1, 2], [3, 0]])
    outputs = []
    for padding in (0.0, 1e6):
        cache = torch.full(LAYOUT.shape(4), padding)
        cache[1] = cache[2] = 1.0
        cache[3, :, :, :, :12] = 2.0
        plan = plan_attention(LAYOUT, tables, [20, 12], [1, 1], num_decodes=2)
        outputs.append(PagedAttention(cache, LAYOUT).attend(0, plan, query, key, key))
        assert len(plan.groups) == 1
    assert torch.equal(*outputs)
