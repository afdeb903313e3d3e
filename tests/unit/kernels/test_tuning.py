"""Tables, the split rule, and what importing the package costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from quire_kernels.errors import UnsupportedError
from quire_kernels.ops.checks import HEAD_DIMS
from quire_kernels.ops.splits import choose_splits
from quire_kernels.tuning import search, tables
from quire_kernels.tuning.tables import LaunchConfig


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    tables.find.cache_clear()
    return tmp_path


@pytest.mark.parametrize("operation", ["decode_attention", "prefill_attention"])
@pytest.mark.parametrize("arch", tables.SHIPPED)
def test_every_shipped_table_covers_every_head_dim(arch: str, operation: str) -> None:
    for head_dim in HEAD_DIMS:
        config = tables.lookup(arch, operation, head_dim=head_dim)
        assert config.block_m >= 16
        assert config.num_stages >= 1


def test_special_shapes_stand_before_general_ones() -> None:
    for arch in tables.SHIPPED:
        for entries in tables.shipped_table(arch).values():
            general = [i for i, entry in enumerate(entries) if not entry["match"]]
            assert all(i == len(entries) - 1 for i in general)


def test_an_unknown_architecture_is_refused_until_tuned_and_found_afterwards(home: Path) -> None:
    with pytest.raises(UnsupportedError, match="sm123"):
        tables.lookup("sm123", "decode_attention", head_dim=64)
    best = search.fastest("decode_attention", search.DECODE, lambda c: abs(c.block_n - 32) + 1.0)
    tables.remember("sm123", "decode_attention", {"head_dim": 64}, best)
    assert tables.lookup("sm123", "decode_attention", head_dim=64) == best
    assert best.block_n == 32
    assert [path.name for path in (home / ".cache" / "quire").iterdir()] == ["tuning-sm123.json"]


def test_candidates_that_do_not_run_are_skipped() -> None:
    def measure(config: LaunchConfig) -> float:
        if config.num_stages > 3:
            raise RuntimeError("out of shared memory")
        return 1.0

    assert search.fastest("prefill_attention", search.PREFILL, measure).num_stages <= 3
    with pytest.raises(UnsupportedError, match="no configuration runs"):
        search.fastest("x", [LaunchConfig(16, 64, 4, 9)], measure)


@pytest.mark.parametrize(
    ("programs", "tiles", "splits"),
    [(8, 64, 16), (64, 64, 2), (128, 512, 1), (2048, 16, 1), (8, 1, 1), (8, 3, 1), (1, 4096, 125)],
)
def test_splits_fill_an_h100_without_overflowing_a_wave(
    programs: int, tiles: int, splits: int
) -> None:
    assert choose_splits(programs, 132, tiles) == splits


def test_importing_the_package_imports_neither_torch_nor_triton() -> None:
    code = (
        "import sys, quire_kernels; dir(quire_kernels); "
        "assert not {'torch', 'triton'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
