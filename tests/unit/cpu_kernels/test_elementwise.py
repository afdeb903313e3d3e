"""Row operations, and the team of threads under them."""

from __future__ import annotations

import time

import pytest
import torch

from quire_kernels.cpu import Team
from quire_kernels.cpu.ops import matmul, rms_norm
from quire_kernels.errors import ArgumentError

from .cases import make_weight


@pytest.mark.parametrize("size", [1, 7, 8, 576, 1001])
def test_rms_norm_equals_torch(size: int, team: Team) -> None:
    x, weight = torch.randn(3, size) * 10, torch.randn(size)
    expected = torch.nn.functional.rms_norm(x, (size,), weight, 1e-5)
    torch.testing.assert_close(rms_norm(x, weight, 1e-5, team), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("num_threads", [1, 3, 8])
def test_any_number_of_threads_gives_the_same(num_threads: int, team: Team) -> None:
    weight = make_weight("Q8_0", 200, 64, team)
    x = torch.randn(9, 64)
    other = Team(num_threads, team.library)
    for _ in range(50):
        assert torch.equal(matmul(x, weight.packed, other), matmul(x, weight.packed, team))
    other.close()
    other.close()


def test_threads_sleep_between_calls(team: Team) -> None:
    weight = make_weight("Q8_0", 8, 64, team)
    other = Team(4, team.library)
    matmul(torch.randn(1, 64), weight.packed, other)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.05


def test_a_team_has_at_least_one_thread() -> None:
    with pytest.raises(ArgumentError, match="at least 1"):
        Team(0)
