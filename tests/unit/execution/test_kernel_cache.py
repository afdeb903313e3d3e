"""Where compiled kernels are kept, and which packs an engine takes."""

import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from triton import knobs

from quire_engine.execution.cuda.kernel_cache import prepare_kernels, use_cache
from quire_kernels.compiled.packs import write_pack
from tests.unit.kernels.test_compiled import make_kernel


@pytest.fixture(autouse=True)
def triton_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the process, put back at the end."""
    monkeypatch.setattr(knobs, "propagate_env", False)
    monkeypatch.setattr(knobs.cache, "dir", knobs.cache.dir)
    monkeypatch.setattr(knobs.compilation, "store_binary_only", False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with packs of two architectures, and a damaged one."""
    packs = tmp_path / "packs"
    packs.mkdir()
    for arch in (80, 90):
        make_kernel(tmp_path / "made", f"KEY{arch}", arch)
        write_pack(tmp_path / "made", f"sm{arch}", packs / f"sm{arch}-m.kernels.tar.xz")
    (packs / "sm90-bad.kernels.tar.xz").write_bytes(b"no pack")
    return packs


def test_an_engine_takes_its_architectures_packs_and_says_why_not_the_others(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cache = tmp_path / "cache"
    prepare_kernels("sm90", {"QUIRE_CACHE": str(cache), "QUIRE_KERNELS": str(folder)})
    assert [each.name for each in (cache / "kernels" / "triton").iterdir()] == ["KEY90"]
    assert knobs.cache.dir == str(cache / "kernels" / "triton")
    assert knobs.compilation.store_binary_only
    good, bad = sorted(record.getMessage() for record in caplog.records)
    assert good.startswith(f"1 compiled kernels of {folder}/sm90-m")
    assert bad.startswith(f"compiled kernels of {folder}/sm90-bad.kernels.tar.xz are not used: it")


def test_a_pack_that_is_named_itself_is_taken_or_refused(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pack = folder / "sm80-m.kernels.tar.xz"
    prepare_kernels("sm90", {"QUIRE_CACHE": str(tmp_path / "c"), "QUIRE_KERNELS": str(pack)})
    assert "not used: it is of sm80, and here is sm90" in caplog.text


def test_a_place_without_packs_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nowhere = str(tmp_path / "nowhere")
    prepare_kernels("sm90", {"QUIRE_CACHE": str(tmp_path), "QUIRE_KERNELS": nowhere})
    assert f"QUIRE_KERNELS is {nowhere}, where is neither a pack nor a folder" in caplog.text


def test_tritons_own_setting_wins(tmp_path: Path) -> None:
    before = knobs.cache.dir
    environment = {"TRITON_CACHE_DIR": str(tmp_path / "t"), "QUIRE_CACHE": str(tmp_path / "q")}
    assert use_cache(environment) == tmp_path / "t"
    assert knobs.cache.dir == before
    assert not (tmp_path / "q").exists()


def read_only(folder: Path) -> None:
    """What a file system without space or permission does, whoever the tests run as."""
    (folder / "kernels").mkdir(parents=True)
    (folder / "kernels" / "triton").symlink_to("/proc/self")


def a_file(folder: Path) -> None:
    """What no folder can be made in."""
    folder.write_text("")


@pytest.mark.parametrize("make", [read_only, a_file])
def test_a_cache_that_cannot_be_written_keeps_nobody_from_starting(
    make: Callable[[Path], None], folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(tmp_path / "cache")
    pack = folder / "sm90-m.kernels.tar.xz"
    prepare_kernels("sm90", {"QUIRE_CACHE": str(tmp_path / "cache"), "QUIRE_KERNELS": str(pack)})
    assert "cannot be kept for the next start" in caplog.text
    assert [each.name for each in Path(knobs.cache.dir).iterdir()] == ["KEY90"]
    assert Path(knobs.cache.dir).is_relative_to(tempfile.gettempdir())


def test_a_folder_without_packs_of_the_architecture_is_told(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    prepare_kernels("sm86", {"QUIRE_CACHE": str(tmp_path / "c"), "QUIRE_KERNELS": str(folder)})
    assert f"of the 3 packs in {folder} none is of sm86" in caplog.text


@pytest.mark.parametrize("named", ["~nobody-of-this-name/packs", "/dev/null/packs"])
def test_a_place_that_cannot_be_looked_into_ends_no_start(
    named: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prepare_kernels("sm90", {"QUIRE_CACHE": str(tmp_path), "QUIRE_KERNELS": named})
    assert named.rpartition("/")[0] in caplog.text


COMPILE = """
from quire_engine.config import EngineConfig, ModelConfig, SchedulerConfig
from quire_engine.execution.cuda.ahead import compile_model
from tests.unit.execution.cuda_cases import tiny_spec

config = EngineConfig(
    model=ModelConfig(max_model_len=64),
    scheduler=SchedulerConfig(max_num_seqs=1, max_num_batched_tokens=64),
)
compile_model(config, tiny_spec(), "sm80", has_head_norms=False)
"""


def test_all_kernels_of_a_model_are_compiled_without_a_device(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "TRITON_STORE_BINARY_ONLY": "1"}
    subprocess.run([sys.executable, "-c", COMPILE], env=environment, check=True)
    kernels = {file.stem for file in tmp_path.glob("*/*.cubin")}
    assert kernels >= {
        *("locate_kernel", "gather_kernel", "rms_norm_kernel", "rope_cache_kernel"),
        *("prefill_attention_kernel", "decode_attention_kernel", "gated_kernel", "store_kernel"),
        *("scan_kernel", "join_kernel", "choose_kernel", "search_kernel"),
        *("fetch_kernel", "write_kernel", "copy_blocks_kernel"),
    }
