"""Odd and wrong traces, promises and numbers, from the command line of both commands."""

from pathlib import Path

import pytest

from quire_local.cli import main

KEPT = ["--quantization", "int4", "--slo-time-per-output-token", "120ms", "--gpu", "l4,t4"]
POISSON = ["--generate", "poisson", "--seconds", "60", "--requests-per-second", "2"]
GOOD = (0.0, 300, 50)
Row = tuple[object, object, object]


def write(folder: Path, *rows: Row) -> list[str]:
    names = ("arrival_seconds", "prompt_tokens", "output_tokens")
    path = folder / "trace.jsonl"
    texts = (
        ", ".join(f'"{name}": {value}' for name, value in zip(names, row, strict=True))
        for row in rows
    )
    path.write_text("".join(f"{{{text}}}\n" for text in texts))
    return ["--trace", f"{path}"]


@pytest.mark.parametrize("command", ["plan", "simulate"])
@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("NaN", 300, 50), "line 2: JSON is malformed"),
        (("1e400", 300, 50), "line 2: Number out of range"),
        ((5, -3, 50), "line 2: prompt and output have 1 to"),
        ((5, 300, 0), "line 2: prompt and output have 1 to"),
        ((5, 300.5, 50), "line 2: Expected `int`, got `float`"),
        ((5, '"many"', 50), "line 2: Expected `int`, got `str`"),
        ((-5, 300, 50), "line 2: arrives before"),
    ],
)
def test_nonsense_is_named_by_its_line_or_left_out(
    command: str,
    row: Row,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trace = write(tmp_path, GOOD, row, (6.0, 300, 50))
    assert main([command, *trace, *KEPT]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert line.endswith("or leave such rows out with --skip-bad-rows")
    if command == "plan":
        assert main([command, *trace, *KEPT, "--skip-bad-rows"]) == 0
        assert "note: 1 row is wrong and left out" in capsys.readouterr().err or row[0] == -5


@pytest.mark.parametrize("command", ["plan", "simulate"])
def test_no_traffic_is_an_error(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n")
    assert main([command, "--trace", f"{tmp_path / 'empty.csv'}", *KEPT]) == 2
    assert "empty.csv" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([command, "--generate", "poisson", "--requests-per-second", "0"])
    assert '"0" is no number from' in capsys.readouterr().err


def test_a_hole_of_thirty_years_is_planned_at_once_and_not_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = write(tmp_path, GOOD, (1.0, 300, 50), (1e9, 300, 50))
    assert main(["plan", *trace, *KEPT, "--windows"]) == 0
    told = capsys.readouterr()
    assert "1 hole without any request; the longest is 999999999 s from second 1 on" in told.err
    assert told.out.count("\n") < 30
    assert main(["simulate", *trace, *KEPT]) == 2
    told = capsys.readouterr()
    assert "lasts 11574 days, and 31 can be simulated" in told.err
    assert "--seconds 1h, or use quire plan (1 hole" in told.err
    assert main(["simulate", *trace, *KEPT, "--seconds", "1h", "--scaler", "oracle"]) == 0


def test_one_request_an_hour_is_one_cheap_replica(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = write(tmp_path, *((at * 3600.0, 300, 50) for at in range(3)))
    assert main(["plan", *trace, *KEPT]) == 0
    assert "for the mean of all traffic: 1 t4, $0.35 an hour" in capsys.readouterr().out
    assert main(["simulate", *trace, *KEPT, "--scaler", "quire"]) == 0
    told = capsys.readouterr()
    (row,) = [line.split() for line in told.out.splitlines() if line.startswith("quire ")]
    assert [*row[1:3], row[4]] == ["0.70", "0.35", "100.00%"]
    assert "hole" not in told.err


@pytest.mark.parametrize("command", ["plan", "simulate"])
def test_promises_that_none_keeps_name_the_best_there_is(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, *POISSON, "--slo-time-per-output-token", "1ms"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "the best there is takes 4.8 ms a token (h200): raise --slo-time-per" in line


@pytest.mark.parametrize("command", ["plan", "simulate"])
@pytest.mark.parametrize(
    ("text", "likeness"),
    [
        ("not a trace\n", "looks like 'not a trace', which"),
        ('["arrival_seconds", 1]\n', "looks like a JSON array, not lines of objects, which"),
        ("time,in,out\n1,2,3\n", "looks like CSV without a known heading ('time,in,out'), which"),
    ],
)
def test_a_file_of_neither_format_is_told_both(
    command: str, text: str, likeness: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "outline.jsonl"
    path.write_text(text)
    assert main([command, "--trace", f"{path}", *KEPT]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{path}, line 1: {likeness}" in line
    assert "TIMESTAMP,ContextTokens,GeneratedTokens" in line
    assert '{"arrival_seconds": 0.5, ' in line
    assert "--skip-bad-rows" not in line  # nothing would be left


def test_a_first_line_that_is_none_is_left_out_like_any_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = write(tmp_path, GOOD, (6.0, 300, 50))
    path = tmp_path / "trace.jsonl"
    path.write_text(f"recorded by hand\n{path.read_text()}")
    assert main(["plan", *trace, *KEPT, "--skip-bad-rows"]) == 0
    told = capsys.readouterr()
    assert "line 1: neither a heading nor a JSON object" in told.err
    assert "trace.jsonl: 2 requests in 6 s" in told.out


def test_a_first_token_that_most_cannot_have_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *POISSON, "--slo-time-to-first-token", "15ms", "--gpu", "h100"]) == 0
    assert "of the requests can be served as promised" in capsys.readouterr().out


def test_a_share_that_is_not_all_never_reads_as_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = [(float(second), 100, 20) for second in range(3000)]
    trace = write(tmp_path, *short, (3000.0, 8000, 20))
    assert main(["plan", *trace, "--gpu", "a10g", "--slo-time-to-first-token", "1s"]) == 0
    told = capsys.readouterr().out
    assert "only 99.96% of the requests can be served as promised" in told
    assert "on the mean 103 tokens of prompt and 20 of output" in told


@pytest.mark.parametrize(
    "arguments",
    [
        ["--gpu", "l4@nan"],
        ["--gpu", "l4@-1"],
        ["--gpu", "l4@0"],
        ["--slo-time-to-first-token", "nan"],
        ["--slo-time-per-output-token", "inf"],
        ["--target", "nan"],
        ["--times", "nan"],
        ["--times", "0"],
        ["--seconds", "-5s"],
    ],
)
@pytest.mark.parametrize("command", ["plan", "simulate"])
def test_numbers_that_are_none_are_refused_by_their_flag(
    command: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([command, *POISSON, *arguments])
    assert f"argument {arguments[0]}: " in capsys.readouterr().err
