"""Kernels compiled ahead, packed, and brought into another machine's cache. No device is needed."""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import sys
import tarfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest

from quire_kernels.compiled import packs
from quire_kernels.compiled.absent import devices_of
from quire_kernels.compiled.packs import PackError, install_pack, write_pack
from quire_kernels.errors import UnsupportedError

COMPILE = """
import sys, torch
from quire_kernels.compiled.absent import compiling_for, devices_of
from quire_kernels.ops.gated import gated
from quire_kernels.ops.linear import gated_linear

for arch in sys.argv[1:]:
    with compiling_for(devices_of(arch)[0]):
        gated(torch.empty(3, 128, dtype=torch.bfloat16, device="meta"))
        if arch == "sm90":
            x = torch.empty(1024, 64, dtype=torch.bfloat16, device="meta")
            gated_linear(x, x.new_empty(28672, 64))
"""


def make_kernel(cache: Path, key: str, arch: int = 90) -> None:
    """What Triton leaves of a kernel."""
    folder = cache / key
    folder.mkdir(parents=True)
    (folder / "some_kernel.cubin").write_bytes(b"machine code of " + key.encode())
    (folder / "some_kernel.json").write_text(json.dumps({"target": {"arch": arch}}))
    (folder / "some_kernel.ptx").write_text("text")
    paths = {file.name: str(file) for file in folder.iterdir()}
    (folder / "__grp__some_kernel.json").write_text(json.dumps({"child_paths": paths}))


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """Two kernels of sm90; one of sm80 lies beside them."""
    for key, arch in (("A", 90), ("B", 90), ("C", 80)):
        make_kernel(tmp_path / "made", key, arch)
    file = tmp_path / "sm90-model.kernels.tar.xz"
    assert write_pack(tmp_path / "made", "sm90", file) == 2
    return file


def test_a_pack_brings_its_architectures_kernels_into_another_cache(
    pack: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "used"
    for _ in range(2):  # the second time all is there
        assert install_pack(pack, "sm90", cache) == 2
        assert sorted(folder.name for folder in cache.iterdir()) == ["A", "B"]
        for key in "AB":
            group = json.loads((cache / key / "__grp__some_kernel.json").read_text())
            files = group["child_paths"]
            assert {*files} == {"some_kernel.cubin", "some_kernel.json"}
            assert (
                Path(files["some_kernel.cubin"]).read_bytes() == f"machine code of {key}".encode()
            )
            assert len([*(cache / key).iterdir()]) == 3


def test_equal_kernels_are_equal_packs(pack: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.kernels.tar.xz"
    write_pack(tmp_path / "made", "sm90", again)
    assert again.read_bytes() == pack.read_bytes()


def test_a_kernel_whose_files_were_elsewhere_is_found_again(pack: Path, tmp_path: Path) -> None:
    install_pack(pack, "sm90", tmp_path / "before")
    (tmp_path / "before").rename(tmp_path / "after")
    install_pack(pack, "sm90", tmp_path / "after")
    group = json.loads((tmp_path / "after" / "A" / "__grp__some_kernel.json").read_text())
    assert Path(group["child_paths"]["some_kernel.cubin"]).exists()


@pytest.mark.parametrize(
    ("part", "value", "reason"),
    [
        ("arch", "sm89", "it is of sm90, and here is sm89"),
        ("triton", "2.0.0", r"it is of Triton \S+, and here is 2.0.0"),
        ("compiler", "other", "another build of Triton"),
        ("sources", "other", "compiled from other sources"),
    ],
)
def test_a_pack_of_something_else_is_refused_with_the_reason(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, value: str, reason: str
) -> None:
    here = replace(packs.identity_of("sm90"), **{part: value})
    monkeypatch.setattr(packs, "identity_of", lambda _arch: here)
    with pytest.raises(PackError, match=reason):
        install_pack(pack, "sm90", tmp_path / "used")
    assert not (tmp_path / "used").exists()


def test_a_pack_with_any_flipped_bit_is_refused(pack: Path, tmp_path: Path) -> None:
    whole, refused = pack.read_bytes(), 0
    for place in range(0, len(whole), 7):
        pack.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        try:
            install_pack(pack, "sm90", tmp_path / "used")
        except PackError:
            refused += 1
    assert refused == len(range(0, len(whole), 7))
    assert not (tmp_path / "used").exists()


def test_a_pack_that_unpacks_to_too_much_is_refused_before_it_does(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "_MAX_BYTES", 1 << 16)
    pack.write_bytes(lzma.compress(bytes((1 << 16) + 1)))
    with pytest.raises(PackError, match="it is no pack: unpacked it has more than"):
        install_pack(pack, "sm90", tmp_path / "used")


@pytest.mark.parametrize(
    "text", ["", "[]", "null", '{"child_paths": 5}', '{"child_paths": {"a": 5}}', '{"child_paths"']
)
def test_what_is_damaged_in_the_cache_is_brought_again(
    pack: Path, tmp_path: Path, text: str
) -> None:
    cache = tmp_path / "used"
    install_pack(pack, "sm90", cache)
    group, code = cache / "A" / "__grp__some_kernel.json", cache / "A" / "some_kernel.cubin"
    good = group.read_text()
    group.write_text(text)
    code.write_bytes(b"")  # of a machine that lost its power
    assert install_pack(pack, "sm90", cache) == 2
    assert group.read_text() == good
    assert code.read_bytes() == b"machine code of A"


@pytest.mark.parametrize("left", [0, 0.3, 0.9])
def test_a_pack_that_was_cut_short_is_refused(pack: Path, tmp_path: Path, left: float) -> None:
    whole = pack.read_bytes()
    pack.write_bytes(whole[: int(left * len(whole))])
    with pytest.raises(PackError, match=r"damaged|manifest"):
        install_pack(pack, "sm90", tmp_path / "used")
    assert not (tmp_path / "used").exists()


def rewrite(pack: Path, old: str, new: str, data: bytes) -> None:
    """Put another file in a file's place, and its name into the manifest."""
    with tarfile.open(pack) as archive:
        files = {
            entry.name: stream.read()
            for entry in archive
            if (stream := archive.extractfile(entry)) is not None
        }
    del files[old]
    files[new] = data
    manifest = json.loads(files["manifest.json"])
    manifest["files"][new] = manifest["files"].pop(old)
    files["manifest.json"] = json.dumps(manifest).encode()
    with tarfile.open(pack, "w:xz") as archive:
        for name in ("manifest.json", *sorted(files.keys() - {"manifest.json"})):
            entry = tarfile.TarInfo(name)
            entry.size = len(files[name])
            archive.addfile(entry, BytesIO(files[name]))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("A/some_kernel.cubin", b"other machine code"),
        ("../some_kernel.cubin", b"machine code of A"),
        ("/tmp/some_kernel.cubin", b"machine code of A"),
        ("A/B/some_kernel.cubin", b"machine code of A"),
        ("A/__grp__some_kernel.json", b"machine code of A"),
        ("A/" + 300 * "x" + ".cubin", b"machine code of A"),
    ],
)
def test_a_file_that_was_changed_or_lies_elsewhere_is_refused(
    pack: Path, tmp_path: Path, name: str, data: bytes
) -> None:
    rewrite(pack, "A/some_kernel.cubin", name, data)
    with pytest.raises(PackError, match="damaged"):
        install_pack(pack, "sm90", tmp_path / "used")
    assert not (tmp_path / "used").exists()


def test_a_cache_without_kernels_makes_no_pack(tmp_path: Path) -> None:
    make_kernel(tmp_path / "made", "A", 80)
    with pytest.raises(PackError, match="no compiled kernels of sm90"):
        write_pack(tmp_path / "made", "sm90", tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_an_architecture_without_tiles_cannot_be_compiled_ahead() -> None:
    with pytest.raises(UnsupportedError, match="sm120: there are tables for sm80, sm86, sm89"):
        devices_of("sm120")


def test_kernels_are_compiled_for_devices_that_are_not_here(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", COMPILE, "sm80", "sm90"]
    environment["TRITON_CACHE_DIR"] = str(tmp_path / "made")
    subprocess.run(command, env=environment, check=True)
    expected = {"sm80": ["gated_kernel"], "sm90": ["gated_kernel", "hopper_gated_kernel"]}
    for arch, names in expected.items():
        file = tmp_path / f"{arch}.kernels.tar.xz"
        assert write_pack(tmp_path / "made", arch, file) == len(names)
        assert install_pack(file, arch, tmp_path / arch) == len(names)
        codes = {code.stem: code.read_bytes() for code in (tmp_path / arch).glob("*/*.cubin")}
        assert sorted(codes) == names
        assert all(code[:4] == b"\x7fELF" for code in codes.values())
