"""Examples in the help of `quire simulate` and `quire plan` work as they stand."""

import shlex
from pathlib import Path

import pytest

from quire_local import plan
from quire_local.cli import main
from quire_local.simulate.parser import make_parser

EXAMPLES = [
    line.strip()
    for parser in (make_parser(), plan._parser())
    for line in (parser.epilog or "").splitlines()
    if line.startswith("  quire ")
]
HEADING = "TIMESTAMP,ContextTokens,GeneratedTokens"
SERVICES = "[{name: chat, generate: diurnal}, {name: documents, trace: trace.csv}]"


def test_there_are_examples_of_both() -> None:
    assert {line.split()[1] for line in EXAMPLES} == {"simulate", "plan"}


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_works(
    example: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trace.csv").write_text(f"{HEADING}\n2023-11-16 18:15:46,374,44\n")
    Path("services.yaml").write_text(SERVICES)
    _, *arguments = shlex.split(example)
    assert main([*arguments, "--seconds=20s"]) == 0, capsys.readouterr().err
