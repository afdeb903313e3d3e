"""The cache sized from what the device has left: these tests want the device for themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from quire_engine.config import CacheConfig
from quire_engine.errors import CapacityError
from tests.gpu.test_executor import CONFIG, source_of, start_executor

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def test_more_blocks_than_fit_are_refused() -> None:
    config = replace(CONFIG, cache=CacheConfig(max_num_blocks=1 << 30))
    with pytest.raises(CapacityError, match=r"do not fit: of \d+\.\d GiB, .* fit; lower max_num"):
        start_executor(source_of("llama3"), config)


def test_the_cache_takes_what_the_profile_leaves() -> None:
    config = replace(CONFIG, cache=CacheConfig(gpu_memory_utilization=0.5))
    executor, facts = start_executor(source_of("llama3"), config)
    free, total = torch.cuda.mem_get_info()
    assert 0.4 * total <= total - free <= 0.51 * total
    assert facts.num_blocks > 1024 // 16
    executor.close()
