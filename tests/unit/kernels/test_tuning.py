"""Tables, the split rule, and what importing the package costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from quire_kernels.errors import UnsupportedError
from quire_kernels.ops.attention_batch import AttentionBatch, AttentionOptions
from quire_kernels.ops.attention_decode import config_for, splits_for
from quire_kernels.ops.checks import HEAD_DIMS
from quire_kernels.ops.device import Device
from quire_kernels.ops.splits import choose_splits
from quire_kernels.tuning import search, tables
from quire_kernels.tuning.tables import LaunchConfig


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.delenv("QUIRE_CACHE", raising=False)
    monkeypatch.setattr(tables, "_TUNED", {})
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


def test_tuned_tiles_outlive_the_process_where_the_cache_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUIRE_CACHE", str(tmp_path / "mine"))
    config = LaunchConfig(16, 64, 4, 3)
    tables.remember("sm123", "decode_attention", {"head_dim": 64}, config)
    monkeypatch.setattr(tables, "_TUNED", {})
    tables.find.cache_clear()
    assert tables.lookup("sm123", "decode_attention", head_dim=64) == config
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["tuning-sm123.json"]


def test_a_cache_that_takes_no_file_or_holds_a_damaged_one_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    no_folder = tmp_path / "file"
    no_folder.write_text("")
    monkeypatch.setenv("QUIRE_CACHE", str(no_folder))
    config = LaunchConfig(16, 64, 4, 3)
    tables.remember("sm123", "decode_attention", {"head_dim": 64}, config)
    assert tables.lookup("sm123", "decode_attention", head_dim=64) == config
    assert "cannot be kept" in caplog.text

    monkeypatch.setenv("QUIRE_CACHE", str(tmp_path))
    (tmp_path / "tuning-sm124.json").write_text("{ half")
    with pytest.raises(UnsupportedError, match="sm124"):
        tables.lookup("sm124", "decode_attention", head_dim=64)
    assert "cannot be read" in caplog.text


GOOD = {"block_m": 16, "block_n": 64, "num_warps": 4, "num_stages": 3}


@pytest.mark.parametrize(
    "table",
    [
        [],
        None,
        7,
        {"decode_attention": 7},
        {"decode_attention": [{"config": GOOD}]},
        {"decode_attention": [{"match": {}}]},
        {"decode_attention": [{"match": {}, "config": {**GOOD, "block_o": 1}}]},
        {"decode_attention": [{"match": {}, "config": {**GOOD, "block_n": 0}}]},
        {"decode_attention": [{"match": {}, "config": {**GOOD, "num_warps": "four"}}]},
        {"decode_attention": [{"match": {}, "config": {**GOOD, "num_stages": 2.5}}]},
        {"decode_attention": [{"match": [], "config": GOOD}]},
    ],
)
def test_a_table_that_makes_no_sense_is_none(
    table: object, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (home / ".cache" / "quire").mkdir(parents=True)
    (home / ".cache" / "quire" / "tuning-sm125.json").write_text(json.dumps(table))
    with pytest.raises(UnsupportedError, match="sm125"):
        tables.lookup("sm125", "decode_attention", head_dim=64)
    assert "cannot be read" in caplog.text
    tables.remember("sm125", "decode_attention", {"head_dim": 64}, LaunchConfig(16, 64, 4, 3))
    assert tables.lookup("sm125", "decode_attention", head_dim=64) == LaunchConfig(16, 64, 4, 3)


def test_tiles_that_nobody_times_are_timed_anew(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for operation in ("decode_attention", "prefill_attention"):
        tables.remember("sm126", operation, {"head_dim": 64}, LaunchConfig(4096, 4096, 1, 9))
    monkeypatch.setattr(search, "device_of", lambda _tensor: Device("sm126", 4))
    monkeypatch.setattr(search, "_milliseconds", lambda _attempt, config: config.block_n)
    q, cache = torch.zeros(1024, 1, 64), torch.zeros(65, 1, 16, 64)
    found = search.tune_attention(q, cache, cache)
    assert found["decode_attention"].block_n == 32
    for operation, config in found.items():
        assert tables.lookup("sm126", operation, head_dim=64) == config


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


@pytest.mark.parametrize(
    ("num_seqs", "splits"),
    [(1, 16), (8, 2), (16, 2), (24, 2), (32, 1), (40, 2), (56, 2), (64, 1), (80, 1), (256, 1)],
)
def test_contexts_are_halved_where_they_fill_an_h200_a_few_times(
    num_seqs: int, splits: int
) -> None:
    device = Device("sm90", 132, reads_fast=True)
    config = config_for(8 * num_seqs, 128, device)
    lengths = torch.ones(num_seqs, dtype=torch.int32)
    starts = torch.arange(num_seqs + 1, dtype=torch.int32)
    batch = AttentionBatch(starts, lengths, torch.zeros(num_seqs, 256).int(), num_seqs, 4096)
    assert splits_for(batch, 8, device, config, AttentionOptions(1.0)) == splits
    short = AttentionBatch(starts, lengths, torch.zeros(num_seqs, 4).int(), num_seqs, 64)
    assert splits_for(short, 8, device, config, AttentionOptions(1.0)) == 1


@pytest.mark.parametrize(
    ("num_seqs", "tile", "splits"),
    [
        (1, (64, 5), 16),
        (8, (128, 5), 4),
        (16, (128, 5), 4),
        (24, (128, 5), 3),
        (32, (128, 5), 2),
        (48, (128, 3), 3),
        (64, (128, 5), 1),
        (96, (128, 5), 1),
        (128, (128, 3), 1),
        (256, (128, 3), 1),
    ],
)
def test_small_heads_have_long_tiles_and_ranges_on_an_h200(
    num_seqs: int, tile: tuple[int, int], splits: int
) -> None:
    device = Device("sm90", 132, reads_fast=True)
    config = config_for(8 * num_seqs, 64, device)
    assert (config.block_n, config.num_stages) == tile
    lengths = torch.ones(num_seqs, dtype=torch.int32)
    starts = torch.arange(num_seqs + 1, dtype=torch.int32)
    batch = AttentionBatch(starts, lengths, torch.zeros(num_seqs, 256).int(), num_seqs, 4096)
    assert splits_for(batch, 8, device, config, AttentionOptions(1.0)) == splits
    assert config_for(8 * num_seqs, 64, Device("sm90", 132)).block_n == 64


def test_importing_the_package_imports_neither_torch_nor_triton() -> None:
    code = (
        "import sys, quire_kernels; dir(quire_kernels); "
        "assert not {'torch', 'triton'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
