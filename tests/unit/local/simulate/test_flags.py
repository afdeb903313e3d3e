"""Every flag of `quire simulate` and `quire plan` changes something, or is refused."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from quire_local import plan
from quire_local.cli import main
from quire_local.simulate.parser import make_parser

TRAFFIC = ["--generate=diurnal", "--seconds=1m", "--requests-per-second=3"]
SIMULATED = ["simulate", *TRAFFIC, "--gpu=l4", "--quantization=int4", "--scaler=quire"]
PLANNED = ["plan", *TRAFFIC, "--gpu=l4", "--quantization=int4", "--windows"]
OF_TRAFFIC = {
    "--generate": ["--generate=poisson"],
    "--requests-per-second": ["--requests-per-second=2"],
    "--seconds": ["--seconds=50s"],
    "--times": ["--times=0.5"],
    "--seed": ["--seed=1"],
    "--model": ["--model=llama3.2-3b"],
    "--quantization": ["--quantization=int8"],
    "--max-model-len": ["--max-model-len=600"],
    "--gpu": ["--gpu=l4@2"],
    "--slo-time-to-first-token": ["--slo-time-to-first-token=500ms"],
    "--slo-time-per-output-token": ["--slo-time-per-output-token=40ms"],
    "--target": ["--target=40"],
    "--admission": ["--admission=10"],
}
OF_A_SIMULATION = {
    **OF_TRAFFIC,
    "--percentile": ["--percentile=60"],
    "--start-seconds": ["--start-seconds=20s"],
    "--max-tokens": ["--max-tokens=400"],
    "--scaler": ["--scaler=keda"],
    "--min-replicas": ["--min-replicas=6"],
    "--max-replicas": ["--max-replicas=1"],
    "--max-cost-per-hour": ["--max-cost-per-hour=1"],
    "--gateways": ["--gateways=3"],
    "--fail-hours": ["--fail-hours=0.02"],
    "--spot": ["--spot=l4=0.02"],
    "--event": ["--event=30:kill:l4"],
    "--restart-operator": ["--restart-operator=20s"],
}
OF_A_PLAN = {**OF_TRAFFIC, "--window": ["--window=20s"]}
IN_PLACE = {
    "--start-seconds": ["--event=10:kill:l4"],
    "--restart-operator": ["--seconds=5m", "--requests-per-second=6"],
}
"""What else is needed for a flag to matter."""
ELSEWHERE = {"--help", "--trace", "--skip-bad-rows", "--services", "--fixed"} | {
    "--json",
    "--html",
    "--windows",
}
"""Files and what other tests are of."""


def figures(arguments: list[str], path: Path) -> Any:
    """What a command computes, without what it was asked."""
    assert main([*arguments, f"--json={path}"]) == 0
    document = json.loads(path.read_text())
    document.pop("settings", None)
    return document


def flags_of(parser: argparse.ArgumentParser) -> set[str]:
    return {text for action in parser._actions for text in action.option_strings} - {"-h"}


def test_no_flag_is_forgotten_here() -> None:
    of_simulations = {"--services", "--fixed", "--html"}
    assert flags_of(make_parser()) == (OF_A_SIMULATION.keys() | ELSEWHERE) - {"--windows"}
    assert flags_of(plan._parser()) == (OF_A_PLAN.keys() | ELSEWHERE) - of_simulations


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("usual") / "a.json"
    return {command[0]: figures(command, path) for command in (SIMULATED, PLANNED)}


@pytest.mark.parametrize("flag", OF_A_SIMULATION)
def test_a_flag_changes_a_simulation(flag: str, usual: Any, tmp_path: Path) -> None:
    path, place = tmp_path / "a.json", IN_PLACE.get(flag)
    before = figures([*SIMULATED, *place], path) if place else usual["simulate"]
    assert figures([*SIMULATED, *(place or []), *OF_A_SIMULATION[flag]], path) != before


@pytest.mark.parametrize("flag", OF_A_PLAN)
def test_a_flag_changes_a_plan(flag: str, usual: Any, tmp_path: Path) -> None:
    assert figures([*PLANNED, *OF_A_PLAN[flag]], tmp_path / "a.json") != usual["plan"]


@pytest.mark.parametrize("flag", ["--start-seconds=20s", "--percentile=60", "--scaler=quire"])
def test_a_plan_takes_no_flag_that_it_has_no_use_for(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*PLANNED, flag])
    assert f"unrecognized arguments: {flag}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "arguments", "flag"),
    [
        ("simulate", ["--trace=t.csv", "--requests-per-second=5"], "--requests-per-second"),
        ("simulate", ["--generate=poisson", "--skip-bad-rows"], "--skip-bad-rows"),
        ("plan", ["--trace=t.csv", "--requests-per-second", "5"], "--requests-per-second"),
        ("plan", ["--trace=t.csv", "--seed=0"], "--seed"),
        ("simulate", ["--scaler=quire", "--fixed=l4=2"], "--fixed"),
        ("simulate", ["--scaler=oracle,greedy", "--min-replicas=2"], "--min-replicas"),
        ("simulate", ["--scaler=oracle,melange", "--max-replicas=2"], "--max-replicas"),
        ("simulate", ["--scaler=keda", "--max-cost-per-hour=5"], "--max-cost-per-hour"),
        ("simulate", ["--scaler=keda", "--restart-operator=1m"], "--restart-operator"),
        ("simulate", ["--scaler=oracle", "--start-seconds=1m"], "--start-seconds"),
        ("simulate", ["--scaler=fixed", "--fixed=l4=2", "--start-seconds=1m"], "--start-seconds"),
    ],
)
def test_a_flag_without_effect_beside_the_others_is_refused(
    command: str, arguments: list[str], flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"quire: error: {flag} is of use only w")
