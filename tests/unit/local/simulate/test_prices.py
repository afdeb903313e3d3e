"""Dollars for a million output tokens, computed by hand from what was asked."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from quire_local.cli import main

INT4 = ["--quantization", "int4", "--slo-time-per-output-token", "120ms"]
SHORT = [(at * 0.7, 400, 150) for at in range(1200)]
LONG = [(at * 14.0 + 0.1, 7500, 60) for at in range(60)]
"""An L4 computes none of these within half a second."""


def write(path: Path, rows: Sequence[tuple[float, int, int]]) -> list[str]:
    keys = ("arrival_seconds", "prompt_tokens", "output_tokens")
    lines = [json.dumps(dict(zip(keys, row, strict=True))) for row in sorted(rows)]
    path.write_text("".join(f"{line}\n" for line in lines))
    return [f"--trace={path}", *INT4]


def run(arguments: list[str], path: Path) -> Mapping[str, Any]:
    assert main([*arguments, f"--json={path}"]) == 0
    found: Mapping[str, Any] = json.loads(path.read_text())
    return found


def row_of(told: str, name: str) -> list[str]:
    [row] = [line for line in told.splitlines() if line.startswith(f"{name}  ")]
    return row.removeprefix(name).split()


def test_a_plan_prices_the_tokens_of_the_mix_and_of_each_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["plan", *write(tmp_path / "a.jsonl", SHORT), "--gpu", "l4,a10g,h100", "--windows"]
    plan = run(asked, tmp_path / "a.json")
    told = capsys.readouterr().out
    choices = {"the mix": (plan["mix"], plan["totals"]["mix"])} | {
        f"{name} alone": (plan["singles"][name], plan["totals"]["singles"][name])
        for name in ("l4", "a10g", "h100")
    }
    for name, (windows, total) in choices.items():
        dollars = sum(one["dollars_per_hour"] / 3600 * one["seconds"] for one in windows)
        price = dollars / (len(SHORT) * 150 / 1e6)
        assert total["output_tokens"] == pytest.approx(len(SHORT) * 150)
        assert total["dollars"] == pytest.approx(dollars)
        assert total["dollars_per_million_output_tokens"] == pytest.approx(price)
        assert total["served_share"] == 1.0
        assert row_of(told, name)[1:] == [f"{dollars:.2f}", f"{price:.3f}", "100.00%"]
    first = plan["mix"][0]
    tokens_per_hour = first["requests_per_second"] * 150 * 3600
    [line] = [line for line in told.splitlines() if line.startswith("        0  ")]
    assert line.split()[3] == f"{first['dollars_per_hour'] / tokens_per_hour * 1e6:.3f}"
    assert "M tokens: a million output tokens of requests that are served as promised" in told


def test_a_replica_at_its_target_has_a_price_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *write(tmp_path / "a.jsonl", SHORT), "--gpu", "l4@0.9,h100"]) == 0
    told = capsys.readouterr().out
    for name in ("l4", "h100"):
        _, _, of_requests, of_tokens, *_ = row_of(told, name)
        # of 1,000 requests with 150 tokens each
        assert float(of_tokens) == pytest.approx(float(of_requests) / 0.15, abs=0.005)


def test_tokens_that_a_type_cannot_serve_make_no_price_better(tmp_path: Path) -> None:
    asked = [*write(tmp_path / "a.jsonl", SHORT + LONG), "--slo-time-to-first-token=500ms"]
    plan = run(["plan", *asked, "--gpu", "l4,h100"], tmp_path / "a.json")
    of_l4 = plan["totals"]["singles"]["l4"]
    # what is left unserved is known to half a percent
    assert of_l4["output_tokens"] == pytest.approx(len(SHORT) * 150, rel=0.005)
    assert of_l4["served_share"] == pytest.approx(len(SHORT) / len(SHORT + LONG), rel=0.005)
    assert plan["totals"]["mix"]["output_tokens"] == pytest.approx(
        len(SHORT) * 150 + len(LONG) * 60
    )


@pytest.mark.parametrize(
    ("flags", "is_all"),
    [
        (["--fixed=l4=8"], True),
        (["--fixed=l4=1"], False),  # some are refused
        (["--fixed=l4=8", "--event=15:kill:l4"], False),  # some have begun, and are lost
    ],
)
def test_a_simulation_prices_the_tokens_of_answers(
    flags: list[str], is_all: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [(at * 0.1, 400, 150) for at in range(300)]
    fixed = ["--gpu=l4", "--scaler=fixed", *flags]
    path = tmp_path / "a.json"
    [result] = run(["simulate", *write(tmp_path / "a.jsonl", rows), *fixed], path)["results"]
    told = capsys.readouterr().out
    num_answered = sum(result["answered_by"].values())
    assert (num_answered == len(rows)) == is_all
    assert result["num_output_tokens"] == num_answered * 150
    price = result["dollars"] / (num_answered * 150) * 1e6
    assert result["dollars_per_million_output_tokens"] == pytest.approx(price)
    assert row_of(told, "fixed")[2] == f"{price:.3f}"
    assert "M tokens: a million output tokens of answers" in told


def test_where_nothing_is_answered_tokens_have_no_price(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["simulate", *write(tmp_path / "a.jsonl", SHORT[:5]), "--gpu=l4"]
    gone = ["--scaler=fixed", "--fixed=l4=1", "--event=0:vanish:l4"]
    [result] = run([*asked, *gone], tmp_path / "a.json")["results"]
    assert result["dollars_per_million_output_tokens"] is None
    assert row_of(capsys.readouterr().out, "fixed")[2] == "-"
