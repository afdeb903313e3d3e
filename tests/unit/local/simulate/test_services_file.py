"""Several services from a file, on the command line."""

import json
from pathlib import Path

import pytest

from quire_local.cli import main

COMMON = ["--seconds", "20", "--requests-per-second", "2", "--gpu", "l4=3", "--quantization=int4"]
TWO = """
- {name: chat, priority: 5, generate: poisson}
- {name: documents, generate: bursty, requests-per-second: 1, model: llama3.2-3b, seed: 7}
"""


def test_each_service_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, figures = tmp_path / "services.yaml", tmp_path / "a.json"
    file.write_text(TWO)
    arguments = ["simulate", f"--services={file}", *COMMON, f"--json={figures}"]
    assert main([*arguments, f"--html={tmp_path / 'a.html'}"]) == 0
    table = capsys.readouterr().out
    assert [line.split()[0] for line in table.splitlines()[:3]] == ["service", "chat", "documents"]
    chat, documents = json.loads(figures.read_text())["results"]
    assert (chat["scaler"], documents["scaler"]) == ("chat", "documents")
    assert chat["num_requests"] > documents["num_requests"] > 0
    assert documents["seed"] == 7
    assert "documents" in (tmp_path / "a.html").read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "write a list of services"),
        ("{name: chat}", "write a list of services"),
        ("- [", "is no YAML"),
        ("- chat", "service 1 is no mapping"),
        ("- {generate: poisson}", "has no name"),
        ("- {name: a, priority: high}", "'high' is no whole number"),
        ("- {name: a, gpu: l4}", "(a): a service has no gpu of its own; there are name"),
        ("[{name: a}, {name: b}, {name: b}]", "services.yaml: services 2 and 3 are both named b"),
        ("- {name: a, generate: poisson, generate: bursty}", "generate is there twice"),
        ("- {name: a}", "services.yaml: a: say what is asked"),
        ("- {name: a, generate: poisson, times: -1}", "services.yaml: a: argument --times: "),
        ("- {name: a, generate: }", "services.yaml: a: argument --generate: "),
        (
            "- {name: a, generate: poisson, skip-bad-rows: true}",
            "services.yaml: a: --skip-bad-rows is of use only with --trace",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "services.yaml"
    file.write_text(text)
    assert main(["simulate", f"--services={file}", *COMMON]) == 2
    told = capsys.readouterr().err
    assert words in told.splitlines()[-1]
    assert "Traceback" not in told


def test_a_file_that_is_not_there_and_a_rival_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", f"--services={tmp_path / 'none'}", *COMMON]) != 0
    assert "cannot be read" in capsys.readouterr().err
    (tmp_path / "a").write_text(TWO)
    assert main(["simulate", f"--services={tmp_path / 'a'}", "--scaler=keda", *COMMON]) != 0
    assert "leave --scaler out" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--fixed=l4=1", "--restart-operator=1m", "--skip-bad-rows"])
def test_a_flag_that_is_of_use_to_no_service_is_refused(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").write_text(TWO)
    assert main(["simulate", f"--services={tmp_path / 'a'}", *COMMON, flag]) == 2
    assert f"error: {flag.partition('=')[0]} is of use only with" in capsys.readouterr().err


def test_each_service_has_a_percentile_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a"
    file.write_text("[{name: a, percentile: 52}, {name: b, percentile: 53}]")
    asked = ["simulate", f"--services={file}", *COMMON, "--generate=poisson"]
    assert main(asked) == 0
    assert "at the percentile that each promises" in capsys.readouterr().out
    file.write_text("[{name: a, percentile: 52}]")
    assert main(asked) == 0
    assert "at the 52nd percentile" in capsys.readouterr().out
