"""`quire kernels`: what it refuses, and with which words. No kernel is compiled here."""

import re
from pathlib import Path

import pytest

from quire_local.kernels import file_name, main


def test_an_architecture_and_a_folder_are_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--shape", "llama3-8b"]) == 2
    assert "required: --arch, --output" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--shape", "llama3-8b", "--arch", "sm120"], "cannot be compiled ahead for sm120: there"),
        (["--shape", "llama3-8b", "--arch", "sm90", "--arch", "sm75"], "ahead for sm75: there"),
        (["--shape", "llama9", "--arch", "sm90"], "llama9"),
        (
            ["--shape", "llama3-8b", "--arch", "sm90", "--dtype", "float32"],
            "dtype float32 has no GPU kernels",
        ),
        (["--shape", "llama3-8b", "--arch", "sm90", "--max-model-len", "9999999"], "max_model_len"),
    ],
)
def test_what_cannot_be_compiled_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], reason: str
) -> None:
    assert main([*flags, "--output", str(tmp_path)]) == 2
    assert reason in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("model", ["org/a model", "../org/a model", "org//a\\model"])
def test_a_model_of_an_organisation_is_a_file_of_the_folder(model: str) -> None:
    assert re.fullmatch(r"sm90-(\.\.-)?org-a-model\.kernels\.tar\.xz", file_name("sm90", model))


def test_a_folder_that_cannot_be_made_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    flags = ["--shape", "llama3-8b", "--arch", "sm90", "--output", str(tmp_path / "file" / "x")]
    assert main(flags) == 2
    assert "cannot write into" in capsys.readouterr().err
