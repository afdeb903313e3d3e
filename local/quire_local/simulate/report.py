"""A table for people, and JSON for everything else."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import msgspec

from quire_local.simulate.prices import COLUMN, MEANING, in_words
from quire_local.simulate.results import SimulationResult
from quire_local.simulate.sizing import SizedWindow

_COLUMNS = (
    ("cost $", ">"),
    ("$ / hour", ">"),
    (COLUMN, ">"),
    ("SLO kept", ">"),
    ("first token", ">"),
    ("a token", ">"),
    ("refused", ">"),
    ("lost", ">"),
    ("changes", ">"),
    ("preempted", ">"),
    ("replica-hours", "<"),
)


def write_table(results: Sequence[SimulationResult], *, about: str = "scaler") -> str:
    """A line for each result, and below what the columns mean and which promises were broken.

    Parameters
    ----------
    about
        What each line is of: its column's header.
    """
    columns = ((about, "<"), *_COLUMNS)
    rows = [[name for name, _ in columns], *map(_row, results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            f"{cell:{align}{width}}"
            for cell, (_, align), width in zip(row, columns, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    note = (
        "SLO kept: of all requests, answered whole with both promises met."
        f" First token and a token: at {_percentiles(results)}. {MEANING} of answers."
    )
    return "\n".join([*lines, "", note, *_remarks(results)])


def _percentiles(results: Sequence[SimulationResult]) -> str:
    found = {one.percentile for one in results}
    if len(found) > 1:
        return "the percentile that each promises"
    (only,) = found
    ending = {1: "st", 2: "nd", 3: "rd"}.get(only % 10, "th")  # 50 to 99: no 11th
    return f"the {only}{ending} percentile"


def _remarks(results: Sequence[SimulationResult]) -> list[str]:
    """What somebody who reads the table would ask."""
    found = []
    if any(one.first_token_seconds is None for one in results):
        found.append(
            "never: so many requests were refused or lost that the one at this percentile got no"
            " first token."
        )
    broken = [
        f"{one.scaler} kept {one.attainment:.2%} where {one.percentile}% are promised"
        for one in results
        if not one.meets_slo
    ]
    if broken:
        found.append(
            f"Promise broken: {', '.join(broken)}. Try a lower --target, more --min-replicas,"
            " other GPUs (--gpu), or --scaler fixed --fixed GPU=N."
        )
    return found


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
        in_words(one.dollars_per_million_output_tokens),
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
