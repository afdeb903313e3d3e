"""A table for people, and JSON for everything else."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import msgspec

from quire_local.simulate.results import SimulationResult
from quire_local.simulate.sizing import SizedWindow

_COLUMNS = (
    ("scaler", "<"),
    ("cost $", ">"),
    ("$ / hour", ">"),
    ("SLO kept", ">"),
    ("first token", ">"),
    ("a token", ">"),
    ("refused", ">"),
    ("lost", ">"),
    ("changes", ">"),
    ("preempted", ">"),
    ("replica-hours", "<"),
)


def write_table(results: Sequence[SimulationResult], percentile: int) -> str:
    """A line for each scaler."""
    rows = [[name for name, _ in _COLUMNS], *map(_row, results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            f"{cell:{align}{width}}"
            for cell, (_, align), width in zip(row, _COLUMNS, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    note = (
        "SLO kept: of all requests, answered whole with both promises met."
        f" First token and a token: at the {percentile}th percentile."
    )
    return "\n".join([*lines, "", note])


def _hours(hours: float) -> str:
    return f"{hours:.1f}" if hours >= 1 else f"{hours:.2g}"


def _row(one: SimulationResult) -> list[str]:
    hours = ", ".join(
        f"{name} {_hours(hours)}" for name, hours in one.replica_hours.items() if hours
    )
    return [
        one.scaler,
        f"{one.dollars:.2f}",
        f"{one.dollars_per_hour:.2f}",
        f"{one.attainment:.2%}",
        "never" if one.first_token_seconds is None else f"{one.first_token_seconds:.2f} s",
        "-" if one.per_token_seconds is None else f"{one.per_token_seconds * 1e3:.0f} ms",
        f"{one.num_refused}",
        f"{one.num_lost}",
        f"{one.num_changes}",
        f"{one.num_preemptions}",
        hours,
    ]


def write_json(
    results: Sequence[SimulationResult],
    *,
    settings: Mapping[str, object],
    lower_bound: Sequence[SizedWindow] = (),
) -> bytes:
    """Everything, for programs.

    Parameters
    ----------
    lower_bound
        The cheapest mix of each window, known beforehand.
    """
    document = {
        "schema_version": 1,
        "settings": dict(settings),
        "lower_bound": {
            "dollars": sum(one.dollars for one in lower_bound),
            "windows": [asdict(one) for one in lower_bound],
        }
        if lower_bound
        else None,
        "results": [asdict(one) for one in results],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
