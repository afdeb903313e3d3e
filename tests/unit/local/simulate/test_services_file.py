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
        ("- {name: a, generate: poisson}\n- {name: a, generate: poisson}", "a name of its own"),
        ("- {name: a}", "services.yaml: a: say what is asked"),
        ("- {name: a, generate: poisson, times: -1}", "-1"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "services.yaml"
    file.write_text(text)
    try:
        status = main(["simulate", f"--services={file}", *COMMON])
    except SystemExit as error:  # argparse ends so
        status = 2 if error.code else 0
    assert status != 0
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
