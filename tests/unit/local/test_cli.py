"""The `quire` command: subcommands, help, and errors in one line."""

import os
import subprocess
import sys

import pytest

from quire_engine import __version__
from quire_engine.__main__ import report_errors
from quire_engine.errors import ConfigError, SourceError
from quire_engine.profiles.gpus import GPUS
from quire_engine.profiles.shapes import SHAPES
from quire_local import cli


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in ([], ["--help"], ["help"]):
        assert cli.main(argv) == 0
        shown = capsys.readouterr().out
        assert all(f"  {name}" in shown for name in cli.COMMANDS)


def test_the_usage_of_complete_names_what_it_cannot_do_without(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["complete", "--help"])
    assert "usage: quire complete --input TEXT [MODEL]" in capsys.readouterr().out


def test_a_prompt_that_is_no_text_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["complete", "--input", "caf\udce9"]) == 2
    assert "--input: the text is not valid UTF-8" in capsys.readouterr().err


def test_version_says_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"quire {__version__}"
    assert any(line.startswith("msgspec ") for line in lines)
    assert cli.main(["--version"]) == 0


def test_profiles_lists_what_can_be_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["profiles"]) == 0
    first_words = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line]
    assert first_words == ["--simulate", *GPUS, "--model-shape", *SHAPES]


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    program = "import sys; from quire_local.cli import main; sys.exit(main(['version']))"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(("name", "hint"), [("serv", "did you mean serve?"), ("x", "there are")])
def test_an_unknown_command_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], name: str, hint: str
) -> None:
    assert cli.main([name]) == 2
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", ["up", "top", "doctor", "simulate", "plan", "profiles", "version"]
)
def test_a_wrong_flag_is_one_line_without_the_usage(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main([command, *(["-f", "x.yaml"] if command == "up" else []), "--nonsense"])
    [line] = capsys.readouterr().err.splitlines()
    assert "--nonsense" in line
    assert line.endswith(f"; see quire {command} --help")


@pytest.mark.parametrize("command", ["serve", "complete"])
@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--blok-size", "16"], "unknown flag --blok-size"),
        (["--block-size", "17"], "accepts one of 16, 32, 64"),
        (["--simulate", "h100"], "model_shape is not set"),
        (["a.gguf", "b.gguf"], "unknown argument b.gguf"),
    ],
)
def test_wrong_settings_are_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str], command: str, argv: list[str], message: str
) -> None:
    needed = ["--input", "hello"] if command == "complete" else []
    assert cli.main([command, *needed, *argv]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("quire: error: ")
    assert message in line


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "required: --input"),
        (["--inptu", "x"], "unknown flag --inptu; did you mean --input?"),
        (["--input", "x", "--max-tokens", "0"], '"0" is no whole number of at least 1'),
        (["--input", "x", "--max-tokens", "some"], '"some" is no whole number'),
        (["--input", "x", "--temperature", "nan"], '"nan" is no number from 0 to 2'),
        (["--input", "x", "--temperature", "hot"], '"hot" is no number from 0 to 2'),
        (["--input", "x", "--top-p", "0"], '"0" is no number above 0 and up to 1'),
        (["--input", "x", "--top-k", "-1"], '"-1" is no whole number of at least 0'),
        (["--input", "x", "--min-p", "1.5"], '"1.5" is no number from 0 to 1'),
        (["--input", "x", "--repetition-penalty", "0"], '"0" is no number from 0.01 to 100'),
        (["--input", "x", "--presence-penalty", "3"], '"3" is no number from -2 to 2'),
    ],
)
def test_complete_refuses_wrong_choices(
    capsys: pytest.CaptureFixture[str], argv: list[str], message: str
) -> None:
    assert cli.main(["complete", *argv]) == 2
    assert message in capsys.readouterr().err


def test_a_wrong_variable_is_status_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "QUIRE_PORT", "eighty")
    assert cli.main(["serve"]) == 2
    assert 'QUIRE_PORT is "eighty"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status"),
    [(ConfigError("why"), 2), (SourceError("why"), 1)],
)
def test_errors_for_users_become_one_line(
    capsys: pytest.CaptureFixture[str], error: Exception, status: int
) -> None:
    def action() -> int:
        raise error

    assert report_errors(action) == status
    assert capsys.readouterr().err == "quire: error: why\n"


def test_ctrl_c_before_serving_is_status_130() -> None:
    def action() -> int:
        raise KeyboardInterrupt

    assert report_errors(action) == 130


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        report_errors(lambda: 1 // 0)
